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

/* One cycle, as examples/lockstep.rs of the crate describes it. */
struct Record {
    uint8_t in;
    uint8_t mtu;
    uint16_t len;
    uint32_t tag;
    uint32_t seed;
    uint32_t index;
    uint8_t out;
    uint8_t counted;
    uint16_t beat_len;
    uint32_t packet_tag;
    uint32_t packet_index;
    uint32_t packet_len;
    uint32_t beat_crc;
    uint32_t beat_seed;
    uint32_t beat_index;
    uint32_t cycle;
};
static_assert(sizeof(Record) == 48, "a record has no padding");

enum { OFFERED = 1, LAST = 2, READY = 4, FIRST = 8 };
enum { ACCEPTED = 1, HEADER = 2, PACKET_FIRST = 4, PACKET_LAST = 8, BEAT = 16, END = 32 };

static int arguments;
static char **replay;
static uint64_t cycle;
static uint64_t errors;

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

/* Byte of the message with payload seed `seed`. */
static uint32_t byte_of(uint32_t seed, uint32_t index)
{
    return ((seed + index) * 0x9E3779B1u) >> 24;
}

/* Fills a beat; what lies beyond its length must reach no packet. */
static void fill(uint32_t *words, const Record &record)
{
    for (uint32_t i = 0; i < W; i += 4) {
        uint32_t word = 0;
        for (uint32_t k = 0; k < 4; k++) word |= byte_of(record.seed, record.index + i + k) << (8 * k);
        words[i / 4] = word;
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
    fill(&engine->in_data[0], record);
}

static void compare(Vengine *engine, const Record &record)
{
    bool fires = engine->out_valid && engine->out_ready;
    bool header = fires && engine->out_header;
    bool beat = fires && !engine->out_header;
    same("in_valid & in_ready", record.out & ACCEPTED, engine->in_valid && engine->in_ready);
    same("out_header", (record.out & HEADER) != 0, header);
    same("beat on the output", (record.out & BEAT) != 0, beat);
    if (header) {
        same("out_tag", record.packet_tag, engine->out_tag);
        same("out_index", record.packet_index, engine->out_index);
        same("out_len", record.packet_len, engine->out_len);
        same("out_first", (record.out & PACKET_FIRST) != 0, engine->out_first);
        same("out_last", (record.out & PACKET_LAST) != 0, engine->out_last);
    }
    if (beat) {
        same("out_bytes", record.beat_len, engine->out_bytes);
        same("out_end", (record.out & END) != 0, engine->out_end);
        for (uint32_t i = 0; i < record.beat_len; i++) {
            uint32_t model = byte_of(record.beat_seed, record.beat_index + i);
            uint32_t design = (engine->out_data[i / 4] >> (8 * (i % 4))) & 0xFF;
            if (model == design) continue;
            char name[32];
            snprintf(name, sizeof name, "out_data byte %u", i);
            differs(name, model, design);
        }
    }
}

/* Compares the error counters, which are registers: they show a cycle's errors after its clock edge. */
static void count(Vengine *engine, const Record &record)
{
    static uint32_t model[6];
    const struct { const char *name; uint32_t design; } counters[6] = {
        {"err_empty_beat", engine->err_empty_beat},       {"err_beat_too_long", engine->err_beat_too_long},
        {"err_mtu_changed", engine->err_mtu_changed},     {"err_mtu_range", engine->err_mtu_range},
        {"err_first_missing", engine->err_first_missing}, {"too_long", engine->too_long},
    };
    for (int i = 0; i < 6; i++) {
        model[i] += record.counted >> i & 1;
        same(counters[i].name, model[i], counters[i].design);
        errors += record.counted >> i & 1;
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
    uint64_t beats = 0, packets = 0;

    engine->rst = 1;
    engine->in_valid = 0;
    tick(engine.get());
    tick(engine.get());
    engine->rst = 0;
    while (fread(&record, sizeof record, 1, stdin) == 1) {
        drive(engine.get(), record);
        engine->eval();
        compare(engine.get(), record);
        same("cycle of the record", record.cycle, (uint32_t)cycle);
        beats += record.out & ACCEPTED;
        packets += (record.out & HEADER) != 0;
        tick(engine.get());
        count(engine.get(), record);
        cycle++;
        if (cycle % PROGRESS == 0) fprintf(stderr, "%" PRIu64 " beats, %" PRIu64 " cycles\n", beats, cycle);
    }
    if (argc < 2 || beats < strtoull(argv[1], nullptr, 10)) {
        printf("the records ended after %" PRIu64 " beats\n", beats);
        return 1;
    }
    printf("equal: %" PRIu64 " cycles, %" PRIu64 " beats, %" PRIu64 " packets, %" PRIu64 " errors counted\n", cycle,
           beats, packets, errors);
    return 0;
}
