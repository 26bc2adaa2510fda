/*
 * A verbs program that exchanges vectors of 32-bit integers with one peer over a reliable connection: it sends message
 * after message, receives as many, and checks each against the sum over all ranks of what they send.
 *
 *   allreduce send|write RANK RANKS ELEMENTS MESSAGES WINDOW PSN
 *
 * It prints "qp QPN PSN ADDRESS KEY", address and key of the memory that the peer may write to, and reads
 * "IP QPN PSN ADDRESS KEY" of the peer. Messages have a place of their own, 2 * WINDOW of them in turn, in both memories. No
 * message is sent before the one WINDOW before it was answered. With send, messages are SENDs into posted receives. With
 * write they are RDMA WRITEs to the place of the message at the peer, whose answer is written to its place here.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOUND_SECONDS 280
/* No sum has this value: what is to be overwritten. */
#define BLANK INT32_MIN

static int is_write;
static int rank, ranks, elements, messages, window;
static size_t stride;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *out_mr, *in_mr;
static int32_t *out, *in;
static uint64_t peer_base;
static uint32_t peer_key;

static void fail(const char *what, long detail)
{
	printf("failed: %s (%ld)\n", what, detail);
	exit(1);
}

static int32_t value(int of_rank, int message, int at)
{
	return (of_rank + 1) * 1000003 + message * 131 + at * 7;
}

static int32_t *place(int32_t *memory, int message)
{
	return memory + (size_t)(message % (2 * window)) * stride / sizeof *memory;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static uint8_t gid_index(struct ibv_context *context)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	union ibv_gid gid;
	for (int i = 0; i < 16; i++)
		if (ibv_query_gid(context, 1, i, &gid) == 0 && memcmp(gid.raw, mapped, sizeof mapped) == 0)
			return (uint8_t)i;
	fail("no GID of an IPv4 address", 0);
	return 0;
}

static void create(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = count > 0 ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context != NULL ? ibv_alloc_pd(context) : NULL;
	if (pd == NULL)
		fail("no device", count);
	size_t bytes = 2 * (size_t)window * stride;
	out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	in = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (out == NULL || in == NULL)
		fail("no memory", (long)bytes);
	out_mr = ibv_reg_mr(pd, out, bytes, IBV_ACCESS_LOCAL_WRITE);
	in_mr = ibv_reg_mr(pd, in, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	cq = ibv_create_cq(context, 8 * window, NULL, NULL, 0);
	if (out_mr == NULL || in_mr == NULL || cq == NULL)
		fail("no memory region or completion queue", 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	init.cap.max_send_wr = init.cap.max_recv_wr = 2 * (uint32_t)window;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	qp = ibv_create_qp(pd, &init);
	if (qp == NULL)
		fail("no queue pair", 0);
}

static void modify(struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(qp, attr, IBV_QP_STATE | mask);
	if (error != 0)
		fail("state of the queue pair", error);
}

/* INIT, ready to receive, ready to send. */
static void connect_to(const char *ip, uint32_t qpn, uint32_t psn, uint32_t own_psn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	modify(&attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = qpn;
	attr.rq_psn = psn;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = gid_index(qp->context);
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.grh.dgid.raw[10] = attr.ah_attr.grh.dgid.raw[11] = 0xff;
	if (inet_pton(AF_INET, ip, &attr.ah_attr.grh.dgid.raw[12]) != 1)
		fail("no IPv4 address", 0);
	modify(&attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_MIN_RNR_TIMER);
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = own_psn;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	modify(&attr, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static struct ibv_sge sge_of(int32_t *memory, const struct ibv_mr *mr, int message)
{
	struct ibv_sge sge = {.addr = (uintptr_t)place(memory, message), .lkey = mr->lkey};
	sge.length = (uint32_t)elements * sizeof *memory;
	return sge;
}

static void expect(int message)
{
	for (int at = 0; at < elements; at++)
		((volatile int32_t *)place(in, message))[at] = BLANK;
	if (is_write)
		return;
	struct ibv_sge sge = sge_of(in, in_mr, message);
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)message, .sg_list = &sge, .num_sge = 1}, *bad;
	int error = ibv_post_recv(qp, &wr, &bad);
	if (error != 0)
		fail("posting a receive", error);
}

static void post(int message)
{
	for (int at = 0; at < elements; at++)
		place(out, message)[at] = value(rank, message, at);
	struct ibv_sge sge = sge_of(out, out_mr, message);
	struct ibv_send_wr wr = {.wr_id = (uint64_t)message, .sg_list = &sge, .num_sge = 1}, *bad;
	wr.opcode = is_write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
	wr.wr.rdma.remote_addr = peer_base + (uint64_t)(message % (2 * window)) * stride;
	wr.wr.rdma.rkey = peer_key;
	int error = ibv_post_send(qp, &wr, &bad);
	if (error != 0)
		fail("posting a message", error);
}

/* Whether all of an answer was written. */
static int is_written(int message)
{
	const volatile int32_t *answer = place(in, message);
	for (int at = elements; at-- > 0;)
		if (answer[at] == BLANK)
			return 0;
	return 1;
}

static void check(int message)
{
	for (int at = 0; at < elements; at++) {
		int32_t sum = 0;
		for (int of = 0; of < ranks; of++)
			sum += value(of, message, at);
		if (place(in, message)[at] != sum) {
			printf("message %d, element %d: %d is not %d\n", message, at, place(in, message)[at], sum);
			fail("a wrong sum", message);
		}
	}
}

int main(int argc, char **argv)
{
	if (argc != 8)
		fail("allreduce send|write RANK RANKS ELEMENTS MESSAGES WINDOW PSN", argc);
	is_write = strcmp(argv[1], "write") == 0;
	rank = atoi(argv[2]), ranks = atoi(argv[3]), elements = atoi(argv[4]);
	messages = atoi(argv[5]), window = atoi(argv[6]);
	uint32_t own_psn = (uint32_t)strtoul(argv[7], NULL, 0), qpn, psn;
	stride = 4096;
	if (ranks < 1 || elements < 1 || (size_t)elements * 4 > stride || messages < 1 || window < 1)
		fail("a number is out of range", 0);
	create();
	printf("qp %u %u %" PRIu64 " %u\n", qp->qp_num, own_psn, (uint64_t)(uintptr_t)in, in_mr->rkey);
	fflush(stdout);
	char ip[64];
	if (scanf("%63s %u %u %" SCNu64 " %u", ip, &qpn, &psn, &peer_base, &peer_key) != 5)
		fail("IP QPN PSN ADDRESS KEY", 0);
	connect_to(ip, qpn, psn, own_psn);
	double start = seconds();
	int expected = 0, posted = 0, sent = 0, answered = 0;
	while (sent < messages || answered < messages) {
		/* A place is used again when its message was sent and answered. */
		while (posted < messages && posted < answered + window && posted < sent + 2 * window) {
			expect(expected++);
			post(posted++);
		}
		struct ibv_wc wc;
		int count = ibv_poll_cq(cq, 1, &wc);
		if (count < 0)
			fail("polling", count);
		if (count > 0 && wc.status != IBV_WC_SUCCESS)
			fail(ibv_wc_status_str(wc.status), (long)wc.wr_id);
		if (count > 0 && wc.opcode == IBV_WC_RECV) {
			if (wc.wr_id != (uint64_t)answered || wc.byte_len != (uint32_t)elements * 4)
				fail("an answer of another length", (long)wc.byte_len);
			check(answered++);
		} else if (count > 0) {
			sent++;
		}
		while (is_write && answered < posted && is_written(answered))
			check(answered++);
		if (seconds() - start > BOUND_SECONDS)
			fail("it takes too long: messages answered", answered);
	}
	printf("rank %d: %d sums of %d elements by %s are right, window %d, %.2f s\n", rank, messages, elements, argv[1],
	       window, seconds() - start);
	return 0;
}
