/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which release of the C API these headers describe.
 *
 * Releases of the API moved members of some structs and kept the name of the library. An installed
 * tree is for one release: the default below is written by the installation. A build may say
 * -DURMA_ABI_PROFILE=2512 instead; the library that it runs on must then be of that release too.
 */
#ifndef URMA_PROFILE_H
#define URMA_PROFILE_H

#define URMA_ABI_26_06 2606
#define URMA_ABI_25_12_0_B081 2512

#ifndef URMA_ABI_PROFILE
#define URMA_ABI_PROFILE URMA_ABI_26_06
#endif

#if URMA_ABI_PROFILE == URMA_ABI_26_06
#define URMA_ABI_MARKER "urma_init_abi_26_06"
#elif URMA_ABI_PROFILE == URMA_ABI_25_12_0_B081
#define URMA_ABI_MARKER "urma_init_abi_25_12_0_b081"
#else
#error "URMA_ABI_PROFILE names no known release of the URMA C API"
#endif

/* An array without a length at the end of a struct: C has it, C++ compilers offer it. */
#ifdef __cplusplus
#define URMA_FLEXIBLE __extension__
#else
#define URMA_FLEXIBLE
#endif

#endif
