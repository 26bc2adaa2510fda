/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Providers that do not come up; BROKEN says in which way. None has a destructor, so that the
 * library has to forget what the constructor registered.
 */
#include <stddef.h>

#include <ub/umdk/urma/urma_provider.h>

enum { SILENT = 1, NULL_TABLE, NO_NAME, NO_INIT, NO_CONTEXT, FAILING, UNDEFINED, NEEDY };

#if BROKEN != 1

urma_context_t *broken_create_context(urma_device_t *dev, uint32_t eid_index, int dev_fd);
urma_status_t broken_delete_context(urma_context_t *ctx);
urma_status_t broken_init(urma_init_attr_t *conf);
void broken_load(void);
#if BROKEN == 7 || BROKEN == 8
int broken_elsewhere(void);
#endif

urma_context_t *broken_create_context(urma_device_t *dev, uint32_t eid_index, int dev_fd)
{
    (void)dev, (void)eid_index, (void)dev_fd;
    return NULL;
}

urma_status_t broken_delete_context(urma_context_t *ctx)
{
    (void)ctx;
    return URMA_SUCCESS;
}

urma_status_t broken_init(urma_init_attr_t *conf)
{
    (void)conf;
    return BROKEN == FAILING ? URMA_FAIL : URMA_SUCCESS;
}

static urma_provider_ops_t broken = {
    .name = BROKEN == NO_NAME ? NULL : "broken",
    .init = BROKEN == NO_INIT ? NULL : broken_init,
    .create_context = BROKEN == NO_CONTEXT ? NULL : broken_create_context,
    .delete_context = broken_delete_context,
};

__attribute__((constructor)) void broken_load(void)
{
#if BROKEN == 7 || BROKEN == 8
    (void)broken_elsewhere();
#endif
    (void)urma_register_provider_ops(BROKEN == NULL_TABLE ? NULL : &broken);
}

#else

int broken_nothing;

#endif
