/*
 * One reliable connection of Linux rxe, driven by lines on the console.
 *
 * Owns: a device, a region of 64 KiB, one queue pair at a time. Takes: commands, one per line. Gives: one
 * line per command that begins with "= ".
 *
 *   open PEER_IP PEER_QPN SEND_PSN RECV_PSN MTU TIMEOUT RETRY RNR_RETRY MIN_RNR
 *   recv ID OFFSET LEN
 *   send|sendimm|write|writeimm|read|cas|fadd|sendinv  ID OFFSET LEN VA RKEY A B
 *   poll MILLISECONDS           one completion, or "none"
 *   fill OFFSET LEN START       bytes START, START+1, ...
 *   sum OFFSET LEN              a checksum (FNV-1a), and the first 8 bytes as a number
 *   state                       state of the queue pair
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES 65536

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static uint8_t *memory;

static int start(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (list == NULL || count == 0)
		return -1;
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (context == NULL)
		return -2;
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 512, NULL, NULL, 0);
	memory = aligned_alloc(4096, BYTES);
	if (pd == NULL || cq == NULL || memory == NULL)
		return -3;
	memset(memory, 0, BYTES);
	mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	return mr == NULL ? -4 : 0;
}

/* Index of the GID that is an IPv4 address (RoCEv2): the last one of its kind. */
static int gid_index(void)
{
	int found = -1;
	for (int i = 0; i < 16; i++) {
		union ibv_gid gid;
		static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
		if (ibv_query_gid(context, 1, i, &gid) == 0 && memcmp(gid.raw, mapped, 12) == 0)
			found = i;
	}
	return found;
}

static int to_ready(const char *ip, uint32_t peer, uint32_t send_psn, uint32_t recv_psn, int mtu,
		    int timeout, int retry, int rnr_retry, int min_rnr)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error != 0)
		return error;
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = mtu == 256 ? IBV_MTU_256 : mtu == 512 ? IBV_MTU_512 : IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.rq_psn = recv_psn;
	attr.max_dest_rd_atomic = 16;
	attr.min_rnr_timer = (uint8_t)min_rnr;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = (uint8_t)gid_index();
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.grh.dgid.raw[10] = attr.ah_attr.grh.dgid.raw[11] = 0xff;
	if (inet_pton(AF_INET, ip, &attr.ah_attr.grh.dgid.raw[12]) != 1)
		return -1;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
						 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (error != 0)
		return error;
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = send_psn;
	attr.timeout = (uint8_t)timeout;
	attr.retry_cnt = (uint8_t)retry;
	attr.rnr_retry = (uint8_t)rnr_retry;
	attr.max_rd_atomic = 16;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void command_open(const char *line)
{
	char ip[64];
	unsigned peer, send_psn, recv_psn;
	int mtu, timeout, retry, rnr_retry, min_rnr;
	if (sscanf(line, "%*s %63s %u %u %u %d %d %d %d %d", ip, &peer, &send_psn, &recv_psn, &mtu, &timeout,
		   &retry, &rnr_retry, &min_rnr) != 9) {
		printf("= error syntax\n");
		return;
	}
	if (qp != NULL)
		ibv_destroy_qp(qp);
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	init.cap.max_send_wr = init.cap.max_recv_wr = 128;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	qp = ibv_create_qp(pd, &init);
	int error = qp == NULL ? -1 : to_ready(ip, peer, send_psn, recv_psn, mtu, timeout, retry, rnr_retry, min_rnr);
	if (error != 0)
		printf("= error %d\n", error);
	else
		printf("= open %u %" PRIu64 " %u\n", qp->qp_num, (uint64_t)(uintptr_t)memory, mr->rkey);
}

static void command_recv(const char *line)
{
	uint64_t id, offset;
	unsigned len;
	if (sscanf(line, "%*s %" SCNu64 " %" SCNu64 " %u", &id, &offset, &len) != 3 || offset + len > BYTES) {
		printf("= error syntax\n");
		return;
	}
	struct ibv_sge sge = {.addr = (uintptr_t)memory + offset, .length = len, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	printf("= posted %d\n", ibv_post_recv(qp, &wr, &bad));
}

static int fill_request(struct ibv_send_wr *wr, const char *name, uint64_t va, unsigned rkey, uint64_t a, uint64_t b)
{
	static const struct { const char *name; enum ibv_wr_opcode opcode; } kinds[] = {
		{"send", IBV_WR_SEND}, {"sendimm", IBV_WR_SEND_WITH_IMM}, {"sendinv", IBV_WR_SEND_WITH_INV},
		{"write", IBV_WR_RDMA_WRITE}, {"writeimm", IBV_WR_RDMA_WRITE_WITH_IMM}, {"read", IBV_WR_RDMA_READ},
		{"cas", IBV_WR_ATOMIC_CMP_AND_SWP}, {"fadd", IBV_WR_ATOMIC_FETCH_AND_ADD},
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (strcmp(name, kinds[i].name) != 0)
			continue;
		wr->opcode = kinds[i].opcode;
		if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr->wr.atomic.remote_addr = va;
			wr->wr.atomic.rkey = rkey;
			wr->wr.atomic.compare_add = a;
			wr->wr.atomic.swap = b;
			return 0;
		}
		wr->wr.rdma.remote_addr = va;
		wr->wr.rdma.rkey = rkey;
		if (wr->opcode == IBV_WR_SEND_WITH_INV)
			wr->invalidate_rkey = (uint32_t)a;
		else
			wr->imm_data = htonl((uint32_t)a);
		return 0;
	}
	return -1;
}

static void command_post(const char *line)
{
	char name[16];
	uint64_t id, offset, va, a, b;
	unsigned len, rkey;
	struct ibv_send_wr wr, *bad;
	memset(&wr, 0, sizeof wr);
	if (sscanf(line, "%15s %" SCNu64 " %" SCNu64 " %u %" SCNu64 " %u %" SCNu64 " %" SCNu64, name, &id, &offset,
		   &len, &va, &rkey, &a, &b) != 8 ||
	    offset + len > BYTES || fill_request(&wr, name, va, rkey, a, b) != 0) {
		printf("= error syntax\n");
		return;
	}
	struct ibv_sge sge = {.addr = (uintptr_t)memory + offset, .length = len, .lkey = mr->lkey};
	wr.wr_id = id;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	printf("= posted %d\n", ibv_post_send(qp, &wr, &bad));
}

static int64_t now_ms(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void command_poll(const char *line)
{
	long wait = 0;
	sscanf(line, "%*s %ld", &wait);
	struct ibv_wc wc;
	int64_t end = now_ms() + wait;
	do {
		if (ibv_poll_cq(cq, 1, &wc) > 0) {
			int has_imm = wc.status == IBV_WC_SUCCESS && (wc.wc_flags & IBV_WC_WITH_IMM);
			printf("= wc %" PRIu64 " %d %d %u %u\n", wc.wr_id, wc.status, wc.opcode, wc.byte_len,
			       has_imm ? ntohl(wc.imm_data) : 0);
			return;
		}
	} while (now_ms() < end);
	printf("= none\n");
}

static void command_memory(const char *line)
{
	char name[16];
	uint64_t offset, len, from = 0;
	int count = sscanf(line, "%15s %" SCNu64 " %" SCNu64 " %" SCNu64, name, &offset, &len, &from);
	if (count < 3 || offset + len > BYTES || offset + 8 > BYTES) {
		printf("= error syntax\n");
		return;
	}
	uint64_t hash = 14695981039346656037u, word;
	for (uint64_t i = 0; i < len; i++) {
		if (strcmp(name, "fill") == 0)
			memory[offset + i] = (uint8_t)(from + i);
		hash = (hash ^ memory[offset + i]) * 1099511628211u;
	}
	memcpy(&word, memory + offset, 8);
	printf("= sum %" PRIu64 " %" PRIu64 "\n", hash, word);
}

static void command_state(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	printf("= state %d\n", error == 0 ? (int)attr.qp_state : -1);
}

int main(void)
{
	char line[256];
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("= ready %d\n", start());
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (strncmp(line, "open ", 5) == 0)
			command_open(line);
		else if (strncmp(line, "recv ", 5) == 0)
			command_recv(line);
		else if (strncmp(line, "poll ", 5) == 0)
			command_poll(line);
		else if (strncmp(line, "fill ", 5) == 0 || strncmp(line, "sum ", 4) == 0)
			command_memory(line);
		else if (strncmp(line, "state", 5) == 0)
			command_state();
		else
			command_post(line);
	}
	return 0;
}
