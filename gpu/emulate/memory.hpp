// Memory of an emulated launch: which bytes a thread may touch, and which of its accesses race with another's.
#pragma once

#include "engine.hpp"

namespace emulation {

constexpr uint8_t POISON = 0xB7;
constexpr uint64_t POISON_WORD = 0xB7B7B7B7B7B7B7B7u;

// A byte of shared memory: who wrote and who read it last, and at which count of barriers.
struct Shadow {
    uint16_t writer, reader;  // thread + 1, or NOBODY, MANY, ENGINE
    uint32_t write_time, write_warp_time, read_time, read_warp_time;
};

// A copy under way into shared memory: for an mbarrier's phase, or in a group of its thread (0: not committed yet).
struct Copy {
    uintptr_t to, from, object;
    uint32_t bytes, given, group;
};

// Copies under way, of a thread or, in the last queue, of the engine.
struct Queue {
    Copy* copies;
    uint32_t count, room, groups;
};

// An mbarrier: what its phase still waits for.
struct Object {
    uintptr_t address;
    uint32_t arrivals, pending, phase;
    int64_t bytes;
};

class Memory {
  public:
    void start(const Launch& launch);
    void start_block(uint32_t number);
    void end_block();
    void release();
    void enter(uint32_t thread, uintptr_t stack, size_t bytes);
    void check(uintptr_t address, size_t bytes, Access access, bool vector);
    void order_block() { ++time_; }
    void order_warp(uint32_t warp) { ++warp_time_[warp]; }

    void init(uintptr_t object, uint32_t arrivals);
    void arrive(uintptr_t object, uint32_t bytes);
    bool passed(uintptr_t object, uint32_t parity);
    void copy_in(uintptr_t to, uintptr_t from, uint32_t bytes, uintptr_t object);
    void copy_later(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t given);
    void commit();
    void wait(uint32_t last);

    bool is_shared(uintptr_t address, size_t bytes) const { return address >= low_ && address + bytes <= high_; }
    uintptr_t shared_low() const { return low_; }

  private:
    static constexpr uint32_t OBJECTS = 64, THREADS = 1024;
    void check_shared(uintptr_t address, size_t bytes, Access access);
    void check_array(const Array& array, uintptr_t address, size_t bytes, Access access);
    bool ordered(uint32_t other, uint32_t time, uint32_t warp_time) const;
    void note_read(Shadow& byte);
    Object& find(uintptr_t object);
    void add(Queue& queue, const Copy& copy);
    void arrive(const Copy& copy, uint16_t writer);
    void deliver(uintptr_t object);
    void advance(Object& object);

    uintptr_t low_, high_, stack_, stack_end_;
    Shadow* shadow_;
    const Launch* launch_;
    uint32_t thread_, block_, time_, block_time_, warp_time_[32];
    Object objects_[OBJECTS];
    Queue queues_[THREADS + 1];
    uint32_t object_count_;
};

extern Memory memory;

}  // namespace emulation
