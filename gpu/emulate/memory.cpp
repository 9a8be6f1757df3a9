// Checked memory, and the hooks by which the compiler's instrumentation reports every access.
//
// Kernels are compiled with -fsanitize=thread,alignment,bounds and linked with these functions in the sanitizers'
// stead: a load or store calls __tsan_read4 and so on, a misaligned pointer or an index behind an array's end its handler.
#include "memory.hpp"

#include <cstdlib>
#include <cstring>

// The library's own limits. Only kernels have variables in .bss: it is their shared memory.
extern "C" {
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));
extern char __ehdr_start[] __attribute__((visibility("hidden")));
}

namespace emulation {

namespace {

constexpr uint16_t NOBODY = 0, MANY = 0xFFFF, ENGINE = 0xFFFE, UNDER_WAY = 0xFFFD, WARP = 0x8000;
constexpr size_t STATIC = 48 << 10, DYNAMIC = 227 << 10;  // shared bytes of a CTA: declared, and of launch-time size
const char* const WORDS[] = {"load", "store", "atomic"};

}  // namespace

ENGINE_STATE Memory memory;

void Memory::start(const Launch& launch) {
    launch_ = &launch;
    low_ = (uintptr_t)__bss_start, high_ = (uintptr_t)_end;
    if (high_ - low_ > STATIC && high_ - low_ < DYNAMIC) {  // an array of launch-time size has DYNAMIC bytes
        fail("a CTA needs %zu bytes of shared memory; allowed are %zu declared ones", (size_t)(high_ - low_), STATIC);
    }
    if (!shadow_ && high_ > low_) shadow_ = (Shadow*)calloc(high_ - low_, sizeof(Shadow));
}

void Memory::start_block(uint32_t number) {
    block_ = number;
    block_time_ = ++time_;
    object_count_ = 0;
    for (Queue& queue : queues_) queue.count = queue.groups = 0;
    if (high_ > low_) memset((void*)low_, POISON, high_ - low_);
}

void Memory::end_block() {
    for (const Queue& queue : queues_) {
        if (queue.count) fail("CTA ends while %u copies into shared memory are under way", queue.count);
    }
}

void Memory::release() {
    for (Queue& queue : queues_) {
        free(queue.copies);
        queue = {};
    }
    free(shadow_);
    shadow_ = nullptr;
}

void Memory::enter(uint32_t thread, uintptr_t stack, size_t bytes) {
    thread_ = thread, stack_ = stack, stack_end_ = stack + bytes;
}

void Memory::check(uintptr_t address, size_t bytes, Access access, bool vector) {
    if (address - stack_ < stack_end_ - stack_) return;
    if (vector && address % bytes) {
        fail("misaligned %s of %zu bytes at an address that is a multiple of %u only", WORDS[(int)access], bytes,
             (uint32_t)(address & -address));
    }
    if (address >= low_ && address < high_) return check_shared(address, bytes, access);
    const Array *near = nullptr, *over = nullptr;
    uintptr_t least = 1 << 24;
    for (uint32_t i = 0; i < launch_->arrays; ++i) {
        const Array& array = launch_->array[i];
        if (address + bytes > array.low && address < array.high) {  // arrays may lie in each other's gaps
            if (address >= array.low && array.map[address - array.low]) return check_array(array, address, bytes, access);
            over = &array;
            continue;
        }
        const uintptr_t distance = address < array.low ? array.low - address : address - array.high;
        if (distance < least) near = &array, least = distance;
    }
    if (over) return check_array(*over, address, bytes, access);
    const auto arguments = (uintptr_t)launch_->arguments;
    if (access == Access::LOAD && address >= arguments && address + bytes <= arguments + launch_->argument_bytes) return;
    if (access == Access::LOAD && address >= (uintptr_t)__ehdr_start && address + bytes <= low_) return;
    if (!near) fail("%s of %zu bytes at %#zx, which is in no array", WORDS[(int)access], bytes, (size_t)address);
    fail("%s of %zu bytes out of bounds: %lld bytes from the start of %s, which spans %zu", WORDS[(int)access], bytes,
         (long long)(address - near->low), near->name, (size_t)(near->high - near->low));
}

void Memory::check_array(const Array& array, uintptr_t address, size_t bytes, Access access) {
    const auto offset = (long long)(address - array.low);
    if (access != Access::LOAD && !array.writers) {
        fail("%s of %zu bytes to %s, %lld bytes from its start: it is an input", WORDS[(int)access], bytes, array.name,
             offset);
    }
    for (size_t i = 0; i < bytes; ++i) {
        if (address + i < array.low || address + i >= array.high || !array.map[offset + (long long)i]) {
            fail("%s of %zu bytes out of bounds: %lld bytes from the start of %s, byte %zu belongs to no element",
                 WORDS[(int)access], bytes, offset, array.name, i);
        }
        if (array.made && access != Access::STORE && !array.made[offset + (long long)i]) {
            fail("%s of %zu bytes of %s, %lld bytes from its start, which nobody has written", WORDS[(int)access], bytes,
                 array.name, offset);
        }
        if (access != Access::STORE) continue;
        if (array.made) array.made[offset + (long long)i] = 1;
        uint32_t& writer = array.writers[offset + (long long)i];
        const uint32_t self = block_ * launch_->threads + thread_ + 1;
        if (writer && writer != self) {
            fail("race: %s, %lld bytes from its start, is also written by thread %u of CTA %u", array.name, offset,
                 (writer - 1) % launch_->threads, (writer - 1) / launch_->threads);
        }
        writer = self;
    }
}

// Whether what thread `other` did at those counts comes before what this thread does now.
bool Memory::ordered(uint32_t other, uint32_t time, uint32_t warp_time) const {
    if (other == thread_ || time < time_) return true;
    return other / 32 == thread_ / 32 && warp_time < warp_time_[thread_ / 32];
}

void Memory::note_read(Shadow& byte) {
    const auto self = (uint16_t)(thread_ + 1), warp = (uint16_t)(WARP | thread_ / 32);
    const uint32_t other = byte.reader & WARP ? byte.reader & 31u : (byte.reader - 1u) / 32;
    const bool here = byte.reader != MANY && other == thread_ / 32;  // a read before the warp's last barrier is ordered
    if (byte.read_time < time_ || byte.reader == NOBODY || (here && byte.read_warp_time < warp_time_[thread_ / 32])) {
        byte.reader = self;
    } else if (byte.reader != self && byte.reader != MANY) {
        byte.reader = here ? warp : MANY;
    }
    byte.read_time = time_, byte.read_warp_time = warp_time_[thread_ / 32];
}

void Memory::check_shared(uintptr_t address, size_t bytes, Access access) {
    if (address + bytes > high_) fail("%s behind the end of shared memory", WORDS[(int)access]);
    const bool reads = access != Access::STORE, writes = access != Access::LOAD, atomic = access == Access::ATOMIC;
    Shadow before{}, after{};
    for (size_t i = 0; i < bytes; ++i) {
        const size_t place = address + i - low_;
        Shadow& byte = shadow_[place];
        if (i && memcmp(&byte, &before, sizeof byte) == 0) {  // what is allowed for one byte is so for its like
            byte = after;
            continue;
        }
        before = byte;
        const bool written = byte.writer != NOBODY && byte.write_time >= block_time_;
        if (written && byte.writer == UNDER_WAY) fail("%s of shared byte %zu, to which a copy is under way",
                                                      WORDS[(int)access], place);
        if (reads && !written) fail("load of shared byte %zu, which no thread of the CTA has written", place);
        if (written && byte.writer != ENGINE && !atomic &&
            !ordered(byte.writer - 1u, byte.write_time, byte.write_warp_time)) {
            fail("race: %s of shared byte %zu, which thread %u wrote with no barrier between", WORDS[(int)access],
                 place, byte.writer - 1u);
        }
        if (writes && !atomic && byte.reader != NOBODY && byte.read_time == time_ && byte.read_time >= block_time_) {
            const bool alone = byte.reader == thread_ + 1;
            const bool warp = byte.reader != MANY &&
                              (byte.reader & WARP ? byte.reader & 31u : (byte.reader - 1u) / 32) == thread_ / 32;
            if (!alone && !(warp && byte.read_warp_time < warp_time_[thread_ / 32])) {
                fail("race: store to shared byte %zu, which another thread read with no barrier between", place);
            }
        }
        if (writes) {
            byte.writer = (uint16_t)(thread_ + 1);
            byte.write_time = time_, byte.write_warp_time = warp_time_[thread_ / 32];
        }
        if (reads && !atomic) note_read(byte);
        after = byte;
    }
}

Object& Memory::find(uintptr_t object) {
    for (uint32_t i = 0; i < object_count_; ++i) {
        if (objects_[i].address == object) return objects_[i];
    }
    fail("mbarrier at shared byte %zu was not initialised", (size_t)(object - low_));
}

void Memory::init(uintptr_t object, uint32_t arrivals) {
    check(object, 8, Access::STORE, true);
    if (object_count_ == OBJECTS) fail("more than %u mbarriers", OBJECTS);
    objects_[object_count_++] = {object, arrivals, arrivals, 0, 0};
}

void Memory::arrive(uintptr_t address, uint32_t bytes) {
    Object& object = find(address);
    if (object.pending == 0) fail("mbarrier at shared byte %zu has more arrivals than a phase", (size_t)(address - low_));
    --object.pending;
    object.bytes += bytes;
    advance(object);
}

void Memory::advance(Object& object) {
    if (object.pending || object.bytes) return;
    ++object.phase;
    object.pending = object.arrivals;
}

void Memory::add(Queue& queue, const Copy& copy) {
    if (queue.count == queue.room) {
        queue.room = queue.room ? 2 * queue.room : 16;
        queue.copies = (Copy*)realloc(queue.copies, queue.room * sizeof(Copy));
    }
    queue.copies[queue.count++] = copy;
    for (uint32_t i = 0; i < copy.bytes; ++i) shadow_[copy.to + i - low_].writer = UNDER_WAY;
}

void Memory::arrive(const Copy& copy, uint16_t writer) {
    memset((void*)copy.to, 0, copy.bytes);
    memcpy((void*)copy.to, (const void*)copy.from, copy.given);
    for (uint32_t i = 0; i < copy.bytes; ++i) {
        Shadow& byte = shadow_[copy.to + i - low_];
        byte.writer = writer, byte.write_time = time_, byte.write_warp_time = warp_time_[thread_ / 32];
    }
}

// The copies that a phase waits for arrive as late as they may: when somebody looks.
void Memory::deliver(uintptr_t address) {
    Object& object = find(address);
    Queue& queue = queues_[THREADS];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < queue.count; ++i) {
        const Copy copy = queue.copies[i];
        if (copy.object != address || object.pending) {
            queue.copies[kept++] = copy;
            continue;
        }
        arrive(copy, ENGINE);
        object.bytes -= copy.bytes;
    }
    if (kept != queue.count) queue.count = kept, advance(object);
}

void Memory::copy_later(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t given) {
    if (given > bytes) fail("copy of %u bytes that reads %u", bytes, given);
    if (to % bytes || (given && from % bytes)) fail("misaligned copy of %u bytes: both addresses need as much", bytes);
    if (!is_shared(to, bytes)) fail("copy of %u bytes to a place outside shared memory", bytes);
    if (given) check(from, given, Access::LOAD, false);
    check_shared(to, bytes, Access::STORE);
    add(queues_[thread_], {to, from, 0, bytes, given, 0});
}

void Memory::commit() {
    Queue& queue = queues_[thread_];
    ++queue.groups;
    for (uint32_t i = 0; i < queue.count; ++i) {
        if (!queue.copies[i].group) queue.copies[i].group = queue.groups;
    }
}

void Memory::wait(uint32_t last) {
    Queue& queue = queues_[thread_];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < queue.count; ++i) {
        const Copy copy = queue.copies[i];
        const bool stays = last != ALL_COPIES && (!copy.group || copy.group + last > queue.groups);
        if (stays) queue.copies[kept++] = copy;
        else arrive(copy, (uint16_t)(thread_ + 1));
    }
    queue.count = kept;
}

bool Memory::passed(uintptr_t address, uint32_t parity) {
    deliver(address);
    return (find(address).phase & 1) != (parity & 1);
}

void Memory::copy_in(uintptr_t to, uintptr_t from, uint32_t bytes, uintptr_t object) {
    if (bytes % 16 || to % 16 || from % 16) fail("bulk copy of %u bytes: size and both addresses need 16", bytes);
    if (!is_shared(to, bytes)) fail("bulk copy of %u bytes to a place outside shared memory", bytes);
    find(object);
    check(from, bytes, Access::LOAD, false);
    check_shared(to, bytes, Access::STORE);
    add(queues_[THREADS], {to, from, object, bytes, bytes, 0});
}

void check(uintptr_t address, size_t bytes, Access access, bool vector) { memory.check(address, bytes, access, vector); }
void copy(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }
void copy_in(uintptr_t to, uintptr_t from, uint32_t bytes, uintptr_t object) { memory.copy_in(to, from, bytes, object); }
void copy_later(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t given) { memory.copy_later(to, from, bytes, given); }
void copies_commit() { memory.commit(); }
void copies_wait(uint32_t last) { memory.wait(last); }
uint32_t shared_address(const void* pointer) {
    if (!memory.is_shared((uintptr_t)pointer, 1)) fail("shared address of a pointer that is not to shared memory");
    return (uint32_t)((uintptr_t)pointer - memory.shared_low());
}
uintptr_t shared_place(uint64_t address) { return memory.shared_low() + (uint32_t)address; }

// Out of shared memory the bytes leave at once.
void copy_out(uintptr_t to, uintptr_t from, uint32_t bytes) {
    if (bytes % 16 || to % 16 || from % 16) fail("bulk copy of %u bytes: size and both addresses need 16", bytes);
    if (!memory.is_shared(from, bytes)) fail("bulk copy of %u bytes from a place outside shared memory", bytes);
    memory.check(from, bytes, Access::LOAD, false);
    memory.check(to, bytes, Access::STORE, false);
    memcpy((void*)to, (const void*)from, bytes);
}

}  // namespace emulation

using emulation::Access;
using emulation::memory;

#define HOOK(name, bytes, access) \
    void name(void* p) { memory.check((uintptr_t)p, bytes, access, false); }
#define HOOKS(bytes)                              \
    HOOK(__tsan_read##bytes, bytes, Access::LOAD) \
    HOOK(__tsan_write##bytes, bytes, Access::STORE)
#define UNALIGNED(bytes)                                    \
    HOOK(__tsan_unaligned_read##bytes, bytes, Access::LOAD) \
    HOOK(__tsan_unaligned_write##bytes, bytes, Access::STORE)

// What the compiler knows of the place of a check (libubsan's layout).
struct Source {
    const char* file;
    uint32_t line, column;
};
struct Mismatch {
    Source source;
    const void* type;
    uint8_t log_alignment, kind;
};

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)
void __tsan_read_range(void* p, size_t bytes) { memory.check((uintptr_t)p, bytes, Access::LOAD, false); }
void __tsan_write_range(void* p, size_t bytes) { memory.check((uintptr_t)p, bytes, Access::STORE, false); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

void __ubsan_handle_type_mismatch_v1(const Mismatch* where, uintptr_t pointer) {
    emulation::fail("misaligned access at %s:%u: %u bytes past a multiple of %u", where->source.file,
                    where->source.line, (uint32_t)(pointer & ((1u << where->log_alignment) - 1)),
                    1u << where->log_alignment);
}
void __ubsan_handle_out_of_bounds(const Source* where, uintptr_t index) {
    emulation::fail("index %lld behind the end of an array at %s:%u", (long long)index, where->file, where->line);
}
void __ubsan_handle_shift_out_of_bounds(const Source* where, uintptr_t, uintptr_t places) {
    emulation::fail("shift by %lld places at %s:%u", (long long)places, where->file, where->line);
}
}
