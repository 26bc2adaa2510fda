/*
 * Drives one engine with the records of a model and compares every output in every cycle.
 *
 * Owns: the design, the clock. Takes: records on standard input, the command that makes them again as
 * arguments. Gives: exit code 0 and a last line with counts, or 1 and the first difference: cycle, signal, both
 * values. Must not: know how an engine works.
 *
 * The first argument is the number of beats that must be compared. Built by Verilator with -DW=bytes per beat
 * and --prefix Vengine.
 */
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "verilated.h"
#include "Vengine.h"

/* Cycles between two lines of progress. */
static const uint64_t PROGRESS = 10000000;

/* One cycle, as the model writes it: little-endian, without padding, then W bytes of the beat. */
struct Record {
    uint8_t in;        /* bit 0 offered, 1 first, 2 last, 3 out_ready */
    uint8_t mtu;       /* log2 */
    uint16_t len;      /* valid bytes */
    uint32_t tag;
    uint64_t seed;     /* of the payload */
    uint8_t out;       /* bit 0 accepted, 1 header, 2 beat, 3 end of packet, 4 first, 5 last */
    uint8_t reserved;
    uint16_t beat_len; /* valid bytes */
    uint32_t out_tag;
    uint32_t index;
    uint32_t packet_len;
};
static_assert(sizeof(Record) == 32, "a record has no padding");

enum { OFFERED = 1, FIRST = 2, LAST = 4, READY = 8 };
enum { ACCEPTED = 1, HEADER = 2, BEAT = 4, END = 8, PACKET_FIRST = 16, PACKET_LAST = 32 };

static int arguments;
static char **replay;
static uint64_t cycle;

/* Ends the run with the first difference. */
[[noreturn]] static void differs(const char *signal, uint64_t model, uint64_t design)
{
    printf("cycle %" PRIu64 ": %s: model %" PRIu64 ", design %" PRIu64 "\nreplay:", cycle, signal, model,
           design);
    for (int i = 2; i < arguments; i++) printf(" %s", replay[i]);
    printf("\n");
    exit(1);
}

static void same(const char *signal, uint64_t model, uint64_t design)
{
    if (model != design) differs(signal, model, design);
}

/* Fills a beat with the bytes of a seed (SplitMix64, eight bytes a draw). */
static void fill(uint32_t *words, uint64_t seed)
{
    for (int i = 0; i < W / 8; i++) {
        seed += 0x9E3779B97F4A7C15u;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        words[2 * i] = (uint32_t)z;
        words[2 * i + 1] = (uint32_t)(z >> 32);
    }
}

static void drive(Vengine *engine, const Record &record)
{
    bool offered = record.in & OFFERED;
    engine->in_valid = offered;
    engine->out_ready = (record.in & READY) != 0;
    if (!offered) return;
    engine->in_first = (record.in & FIRST) != 0;
    engine->in_last = (record.in & LAST) != 0;
    engine->in_tag = record.tag;
    engine->in_mtu = record.mtu;
    /* A longer length does not fit the wires; any above W is the same error. */
    engine->in_len = record.len < 2 * W ? record.len : 2 * W - 1;
    fill(&engine->in_data[0], record.seed);
}

static void compare(Vengine *engine, const Record &record, const uint8_t *bytes)
{
    bool fires = engine->out_valid && engine->out_ready;
    bool header = fires && engine->out_header;
    bool beat = fires && !engine->out_header;
    same("in_valid & in_ready", record.out & ACCEPTED, engine->in_valid && engine->in_ready);
    same("out_header", (record.out & HEADER) != 0, header);
    same("beat on the output", (record.out & BEAT) != 0, beat);
    if (header) {
        same("out_tag", record.out_tag, engine->out_tag);
        same("out_index", record.index, engine->out_index);
        same("out_len", record.packet_len, engine->out_len);
        same("out_first", (record.out & PACKET_FIRST) != 0, engine->out_first);
        same("out_last", (record.out & PACKET_LAST) != 0, engine->out_last);
    }
    if (beat) {
        same("out_bytes", record.beat_len, engine->out_bytes);
        same("out_end", (record.out & END) != 0, engine->out_end);
        for (int i = 0; i < record.beat_len; i++) {
            char name[32];
            uint8_t byte = (uint8_t)(engine->out_data[i / 4] >> (8 * (i % 4)));
            snprintf(name, sizeof name, "out_data byte %d", i);
            if (bytes[i] != byte) differs(name, bytes[i], byte);
        }
    }
}

static void tick(Vengine *engine)
{
    engine->clk = 1;
    engine->eval();
    engine->clk = 0;
    engine->eval();
}

int main(int argc, char **argv)
{
    arguments = argc;
    replay = argv;
    std::unique_ptr<Vengine> engine(new Vengine);
    Record record;
    uint8_t bytes[W];
    uint64_t beats = 0, packets = 0;

    engine->rst = 1;
    engine->in_valid = 0;
    tick(engine.get());
    tick(engine.get());
    engine->rst = 0;
    while (fread(&record, sizeof record, 1, stdin) == 1) {
        if ((record.out & BEAT) && fread(bytes, W, 1, stdin) != 1) break;
        drive(engine.get(), record);
        engine->eval();
        compare(engine.get(), record, bytes);
        beats += record.out & ACCEPTED;
        packets += (record.out & HEADER) != 0;
        tick(engine.get());
        cycle++;
        if (cycle % PROGRESS == 0) fprintf(stderr, "%" PRIu64 " beats, %" PRIu64 " cycles\n", beats, cycle);
    }
    if (argc < 2 || beats < strtoull(argv[1], nullptr, 10)) {
        printf("the records ended after %" PRIu64 " beats\n", beats);
        return 1;
    }
    printf("equal: %" PRIu64 " cycles, %" PRIu64 " beats, %" PRIu64 " packets\n", cycle, beats, packets);
    return 0;
}
