// The emulated machine: fibers, the scheduler, and what waits.
#include "engine.hpp"

#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

#include "memory.hpp"

namespace emulation {

ENGINE_STATE Place place;

namespace {

constexpr uint32_t MOST = 1024, LANES = 32;
constexpr size_t STACK = 128 << 10;

enum class State : uint8_t { READY, IN_WARP, AT_BARRIER, AT_OBJECT, DONE };

struct Fiber {
    ucontext_t first;
    jmp_buf jump;
    char* stack;
    bool started;
    uint32_t parity;
    uintptr_t object;
};

// The lanes of a warp that wait in a warp-wide operation: each one's kind and mask, what it gave, where it looks.
struct Warp {
    uint32_t waiting;
    uint64_t meeting[LANES];
    Seen values;
    Seen* seen[LANES];
};

ENGINE_STATE Fiber* fibers;
ENGINE_STATE State states[MOST];
ENGINE_STATE Warp warps[MOST / LANES];
ENGINE_STATE jmp_buf home, bail;
ENGINE_STATE const Launch* launch;
ENGINE_STATE uint32_t current, threads, barrier_sum, barrier_result, waiting, thread_order[MOST];
ENGINE_STATE uint32_t* block_order;
ENGINE_STATE uint64_t random_state;

uint64_t random_below(uint64_t n) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state % n;
}

void permute(uint32_t* order, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) order[i] = i;
    if (launch->seed == 0) return;
    for (uint32_t i = count; i > 1; --i) {
        const uint32_t j = (uint32_t)random_below(i), kept = order[i - 1];
        order[i - 1] = order[j], order[j] = kept;
    }
}

// Back to the scheduler; returns when the thread is run again.
void pause() {
    if (_setjmp(fibers[current].jump) == 0) _longjmp(home, 1);
}

void body() {
    for (;;) {
        launch->entry(launch->arguments);
        states[current] = State::DONE;
        pause();
    }
}

void resume(uint32_t number) {
    current = number;
    Fiber& fiber = fibers[number];
    place.thread = {number, 0, 0};
    memory.enter(number, (uintptr_t)fiber.stack, STACK);
    if (_setjmp(home)) return;
    if (fiber.started) _longjmp(fiber.jump, 1);
    fiber.started = true;
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack;
    fiber.first.uc_stack.ss_size = STACK;
    fiber.first.uc_link = nullptr;
    makecontext(&fiber.first, body, 0);
    setcontext(&fiber.first);
}

const char* waits_for(State state) {
    switch (state) {
        case State::IN_WARP: return "in a warp-wide operation";
        case State::AT_BARRIER: return "at __syncthreads";
        case State::AT_OBJECT: return "at an mbarrier";
        case State::DONE: return "returned";
        default: return "running";
    }
}

// All that are left wait: says for what, by one thread of each kind.
void fail_stuck() {
    uint32_t count[5] = {}, example[5] = {};
    for (uint32_t i = 0; i < threads; ++i) {
        const auto state = (uint32_t)states[i];
        if (count[state]++ == 0) example[state] = i;
    }
    char text[400] = "";
    size_t used = 0;
    for (uint32_t state = 0; state < 5; ++state) {
        if (!count[state]) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%u of %u threads, the first %u: %s",
                                 used ? "; " : "", count[state], threads, example[state],
                                 waits_for((State)state));
    }
    fail("barrier that not all threads reach: %s", text);
}

void run_block() {
    for (uint32_t i = 0; i < threads; ++i) states[i] = State::READY;
    for (Warp& warp : warps) warp.waiting = 0;
    barrier_sum = waiting = 0;
    for (;;) {
        permute(thread_order, threads);
        bool ran = false, left = false;
        for (uint32_t i = 0; i < threads; ++i) {
            const State& state = states[thread_order[i]];
            if (state == State::READY) resume(thread_order[i]), ran = true;
            left = left || state != State::DONE;
        }
        if (!left) return;
        if (!ran) fail_stuck();
    }
}

void prepare() {
    if (!fibers) fibers = (Fiber*)calloc(MOST, sizeof *fibers);
    for (uint32_t i = 0; i < threads; ++i) {
        fibers[i].started = false;
        if (fibers[i].stack) continue;
        void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) fail("no memory for the stacks of %u threads", threads);
        fibers[i].stack = (char*)stack;
    }
}

}  // namespace

void fail(const char* format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(launch->message, launch->capacity, "%s [CTA (%u, %u), thread %u]", text, place.block.x, place.block.y,
             place.thread.x);
    _longjmp(bail, 1);
}

uint32_t lane() { return current % LANES; }

void meet(Meeting kind, uint32_t mask, uint64_t value, Seen& seen, bool orders) {
    const uint32_t first = current - current % LANES, here = threads - first;
    if (here < LANES) mask &= (1u << here) - 1;  // lanes that no thread has
    if (!(mask >> lane() & 1)) fail("warp-wide operation whose mask %#x lacks the calling lane", mask);
    Warp& warp = warps[current / LANES];
    const uint64_t meeting = (uint64_t)kind << 32 | mask;
    states[current] = State::IN_WARP, warp.waiting |= 1u << lane();
    warp.meeting[lane()] = meeting, warp.values[lane()] = value, warp.seen[lane()] = &seen;
    for (uint32_t left = warp.waiting & mask; left; left &= left - 1) {
        const auto i = (uint32_t)__builtin_ctz(left);
        if (warp.meeting[i] != meeting) {
            fail("warp-wide operations do not match: lane %u is in another one, or under the mask %#x beside %#x", i,
                 (uint32_t)warp.meeting[i], mask);
        }
    }
    if ((warp.waiting & mask) != mask) {
        pause();
        return;
    }
    Seen all;
    for (uint32_t i = 0; i < LANES; ++i) all[i] = mask >> i & 1 ? warp.values[i] : POISON_WORD;
    for (uint32_t left = mask; left; left &= left - 1) {
        const auto i = (uint32_t)__builtin_ctz(left);
        memcpy(*warp.seen[i], all, sizeof all);
        states[first + i] = State::READY;
    }
    warp.waiting &= ~mask;
    if (orders) memory.order_warp(first / LANES);
}

uint32_t barrier(uint32_t value) {
    states[current] = State::AT_BARRIER;
    barrier_sum += value;
    if (++waiting < threads) {
        pause();
        return barrier_result;
    }
    for (uint32_t i = 0; i < threads; ++i) states[i] = State::READY;
    barrier_result = barrier_sum;
    waiting = barrier_sum = 0;
    memory.order_block();
    return barrier_result;
}

void barrier_init(uintptr_t object, uint32_t arrivals) { memory.init(object, arrivals); }

void barrier_arrive(uintptr_t object, uint32_t bytes) {
    memory.arrive(object, bytes);
    for (uint32_t i = 0; i < threads; ++i) {
        const Fiber& fiber = fibers[i];
        if (states[i] == State::AT_OBJECT && memory.passed(fiber.object, fiber.parity)) states[i] = State::READY;
    }
}

void barrier_wait(uintptr_t object, uint32_t parity) {
    while (!memory.passed(object, parity)) {
        states[current] = State::AT_OBJECT;
        fibers[current].object = object, fibers[current].parity = parity;
        pause();
    }
}

extern "C" __attribute__((visibility("default"))) int refnum_emulate(const Launch* given) {
    launch = given;
    threads = given->threads;
    random_state = given->seed * 0x9E3779B97F4A7C15u | 1;
    place = {{0, 0, 0}, {0, 0, 0}, {threads, 1, 1}, {given->across, given->down, 1}};
    if (_setjmp(bail)) return 1;
    if (threads == 0 || threads > MOST) fail("launch of %u threads a CTA; allowed are 1 to %u", threads, MOST);
    if (given->across == 0 || given->down == 0 || given->across > 0x7FFFFFFF || given->down > 65535) {
        fail("launch of %u x %u CTAs; allowed are 1 or more, 2147483647 across and 65535 down", given->across, given->down);
    }
    const uint64_t ctas = (uint64_t)given->across * given->down;
    if (ctas > 0xFFFFFFFF) fail("launch of %llu CTAs; the emulator runs fewer than 2**32", (unsigned long long)ctas);
    const uint32_t blocks = (uint32_t)ctas;
    prepare();
    memory.start(*given);
    block_order = (uint32_t*)realloc(block_order, blocks * sizeof *block_order);
    permute(block_order, blocks);
    for (uint32_t i = 0; i < blocks; ++i) {
        place.block = {block_order[i] % given->across, block_order[i] / given->across, 0};
        memory.start_block(block_order[i]);
        run_block();
        memory.end_block();
    }
    return 0;
}

// Gives all memory back; the next launch takes it again.
extern "C" __attribute__((visibility("default"))) void refnum_release() {
    for (uint32_t i = 0; fibers && i < MOST; ++i) {
        if (fibers[i].stack) munmap(fibers[i].stack, STACK);
    }
    free(fibers);
    free(block_order);
    fibers = nullptr, block_order = nullptr;
    memory.release();
}

}  // namespace emulation
