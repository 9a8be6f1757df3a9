// The machine that an emulated kernel runs on: threads of a CTA, barriers, warp-wide exchanges, checked memory.
//
// One CTA runs at a time. Each of its threads is a fiber that runs until it must wait for others, so a launch is
// deterministic for a seed. engine.cpp is the machine; kernels see what is declared here.
#pragma once

#include <cstddef>
#include <cstdint>

// The engine's own variables stay out of .bss, which is the kernels' shared memory.
#define ENGINE_STATE __attribute__((section(".engine")))

namespace emulation {

struct Index {
    uint32_t x, y, z;
};

// Where the running thread is; the kernels' threadIdx, blockIdx, blockDim and gridDim.
struct Place {
    Index thread, block, block_size, grid;
};
extern Place place;

enum class Meeting : uint32_t { SYNC, SHUFFLE, BALLOT, ANY, ALL, MATCH, REDUCE };

// Waits for the lanes of `mask`, all in this same kind of meeting, and gives their values by lane. `orders`: whether
// memory is ordered among them, which is so of __syncwarp alone.
typedef uint64_t Seen[32];
void meet(Meeting kind, uint32_t mask, uint64_t value, Seen& seen, bool orders = false);
uint32_t lane();

// Waits for all threads of the CTA; returns the sum of what they gave.
uint32_t barrier(uint32_t value = 0);

// Ends the launch with an error that names the thread.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

enum class Access : uint32_t { LOAD, STORE, ATOMIC };

// Checks an access before it is made. `vector`: whether the address must be a multiple of the size.
void check(uintptr_t address, size_t bytes, Access access, bool vector);

// Copies bytes whose access was checked.
void copy(void* to, const void* from, size_t bytes);

// The 32-bit address of a place in shared memory, and back.
uint32_t shared_address(const void* pointer);
uintptr_t shared_place(uint64_t address);

// A barrier object in shared memory (mbarrier): arrivals and bytes of copies that a phase waits for.
void barrier_init(uintptr_t object, uint32_t arrivals);
void barrier_arrive(uintptr_t object, uint32_t bytes);
void barrier_wait(uintptr_t object, uint32_t parity);

// A thread's own copy beside it (cp.async): `bytes` into shared memory, the first `given` of them read and the others
// zero. They arrive when the thread waits for all but the `last` groups it committed, or for ALL_COPIES.
constexpr uint32_t ALL_COPIES = ~0u;
void copy_later(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t given);
void copies_commit();
void copies_wait(uint32_t last);

// A copy by the engine beside the threads (cp.async.bulk). Into shared memory its bytes arrive when a phase of
// `object` is waited for, and may not be touched until then; out of it they leave at once.
void copy_in(uintptr_t to, uintptr_t from, uint32_t bytes, uintptr_t object);
void copy_out(uintptr_t to, uintptr_t from, uint32_t bytes);

// One array of a launch: `map` has a byte for every byte from `low` on, 1 where the array has an element.
struct Array {
    const char* name;
    uintptr_t low, high;
    const uint8_t* map;
    uint32_t* writers;  // thread + 1 that wrote each byte in this launch; null when it may only be read
    uint8_t* made;      // 1 for each byte that was written since the array was made; null when all were
};

struct Launch {
    void (*entry)(const void*);
    const void* arguments;
    uint64_t argument_bytes;
    uint32_t across, down, threads, arrays;
    const Array* array;
    uint64_t seed;  // 0: threads and CTAs in their natural order
    char* message;
    uint64_t capacity;
};

}  // namespace emulation
