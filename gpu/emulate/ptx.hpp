// PTX in a kernel's asm statements, run as it is written. The build turns `asm("text" : outputs : inputs)` into
// `emulation::run<"text">(out<'r'>(x), ..., in<'r'>(y), ...)`; a new instruction is one entry of `execute` below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine.hpp"
#include "numbers.hpp"
#include "tensor.hpp"

namespace emulation {

template <size_t n>
struct Text {
    char letters[n];
    consteval Text(const char (&given)[n]) {
        for (size_t i = 0; i < n; ++i) letters[i] = given[i];
    }
    constexpr std::string_view view() const { return {letters, n - 1}; }
};

struct Operand {
    enum Kind { SLOT, NUMBER } kind = NUMBER;
    uint64_t value = 0;  // of SLOT: an operand of the statement, or a register that its text declares
    int64_t offset = 0;  // of an address
};

struct Instruction {
    std::string_view name;
    Operand operands[14];
    int count = 0, guard = -1;  // the predicate's slot
    bool negated = false;
    constexpr bool is(std::string_view text) const { return name == text; }
    constexpr bool has(std::string_view part) const {  // one of the dotted parts, or several
        for (size_t at = name.find(part); at != name.npos; at = name.find(part, at + 1)) {
            const size_t end = at + part.size();
            if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
        }
        return false;
    }
    constexpr std::string_view first() const { return name.substr(0, name.find('.')); }
    constexpr int bytes() const {  // of its type: the digits of the last part
        int bits = 0, place = 1;
        for (size_t i = name.size(); i-- > 0 && name[i] >= '0' && name[i] <= '9'; place *= 10) bits += (name[i] - '0') * place;
        return bits / 8;
    }
    constexpr int vector() const { return has("v4") ? 4 : has("v2") ? 2 : 1; }
};

constexpr int SLOTS = 24, DECLARED = 16, MOST_INSTRUCTIONS = 12;

struct Program {
    Instruction instructions[MOST_INSTRUCTIONS];
    int count = 0;
    std::string_view names[SLOTS - DECLARED];
    int declared = 0;
};

constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
constexpr std::string_view trim(std::string_view s) {
    while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
    while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
    return s;
}
constexpr uint64_t number(std::string_view s) {
    const bool hex = s.size() > 2 && s[1] == 'x';
    uint64_t value = 0;
    for (char c : s.substr(hex ? 2 : 0)) {
        const int digit = c >= 'a' ? c - 'a' + 10 : c >= 'A' && c != 'U' ? c - 'A' + 10 : c - '0';
        if (c != 'U') value = value * (hex ? 16 : 10) + (uint64_t)digit;
    }
    return value;
}

constexpr Operand parse_operand(std::string_view s, const Program& program) {
    s = trim(s);
    Operand out;
    if (!s.empty() && s.front() == '[') {
        s = trim(s.substr(1, s.size() - 2));
        if (const size_t plus = s.find('+'); plus != s.npos) {
            out.offset = (int64_t)number(trim(s.substr(plus + 1)));
            s = trim(s.substr(0, plus));
        }
    }
    if (s.front() == '%') {
        out.kind = Operand::SLOT, out.value = number(s.substr(1));
    } else if (s.front() >= '0' && s.front() <= '9') {
        out.value = number(s);
    } else {
        out.kind = Operand::SLOT, out.value = SLOTS - 1;  // `_`, or a name
        for (int i = 0; i < program.declared; ++i) {
            if (program.names[i] == s) out.value = (uint64_t)(DECLARED + i);
        }
    }
    return out;
}

constexpr void parse_statement(std::string_view s, Program& program) {
    if (s.starts_with(".reg")) {
        s = trim(s.substr(4));
        s = trim(s.substr(s.find(' ')));
        for (;;) {
            const size_t comma = s.find(',');
            program.names[program.declared++] = trim(s.substr(0, comma));
            if (comma == s.npos) return;
            s = trim(s.substr(comma + 1));
        }
    }
    Instruction& out = program.instructions[program.count++];
    if (s.front() == '@') {
        s.remove_prefix(1);
        out.negated = s.front() == '!';
        if (out.negated) s.remove_prefix(1);
        size_t end = 0;
        while (!is_space(s[end])) ++end;
        out.guard = (int)parse_operand(s.substr(0, end), program).value;
        s = trim(s.substr(end));
    }
    size_t end = 0;
    while (end < s.size() && !is_space(s[end])) ++end;
    out.name = s.substr(0, end);
    s = trim(s.substr(end));
    while (!s.empty()) {
        size_t comma = 0;
        while (comma < s.size() && s[comma] != ',') ++comma;
        std::string_view one = trim(s.substr(0, comma));
        while (!one.empty() && one.front() == '{') one = trim(one.substr(1));
        while (!one.empty() && one.back() == '}') one = trim(one.substr(0, one.size() - 1));
        out.operands[out.count++] = parse_operand(one, program);
        s = comma < s.size() ? trim(s.substr(comma + 1)) : std::string_view{};
    }
}

template <Text text>
consteval Program parse() {
    Program program;
    std::string_view s = trim(text.view());
    if (!s.empty() && s.front() == '{') s = trim(s.substr(1));  // a scope of its own
    while (!s.empty()) {
        const size_t end = s.find(';');
        const std::string_view one = trim(s.substr(0, end));
        if (!one.empty() && one != "}") parse_statement(one, program);
        s = end == s.npos ? std::string_view{} : trim(s.substr(end + 1));
    }
    return program;
}

struct Registers {
    uint64_t slot[SLOTS];
    uint64_t get(const Operand& o) const { return (o.kind == Operand::SLOT ? slot[o.value] : o.value) + (uint64_t)o.offset; }
    void set(const Operand& o, uint64_t value) { slot[o.value] = value; }
};

template <class>
constexpr bool NEVER = false;

// A place in memory: shared addresses have 32 bits and start at 0.
template <const Instruction& i>
inline uintptr_t place_of(const Registers& r, const Operand& o) {
    return i.name.find("shared") != std::string_view::npos ? shared_place(r.get(o)) : (uintptr_t)r.get(o);
}

template <Text text, int number>
struct Step {
    static constexpr Program program = parse<text>();
    static constexpr Instruction i = program.instructions[number];

    static void access(Registers& r, uintptr_t p, int first, bool store) {
        constexpr int bytes = i.bytes(), count = i.vector();
        check(p, (size_t)(bytes * count), store ? Access::STORE : Access::LOAD, true);
        uint8_t words[bytes * count];
        if (!store) copy(words, (const void*)p, sizeof words);
        for (int n = 0; n < count; ++n) {
            uint64_t value = store ? r.get(i.operands[first + n]) : 0;
            if (store) __builtin_memcpy(words + n * bytes, &value, bytes);
            else __builtin_memcpy(&value, words + n * bytes, bytes), r.set(i.operands[first + n], value);
        }
        if (store) copy((void*)p, words, sizeof words);
    }

    // The table of instructions.
    static void execute(Registers& r) {
        constexpr const Operand* o = i.operands;
        const uint64_t a = i.count > 1 ? r.get(o[1]) : 0, b = i.count > 2 ? r.get(o[2]) : 0, c = i.count > 3 ? r.get(o[3]) : 0;
        if constexpr (i.first() == "ld") {
            access(r, place_of<i>(r, o[i.vector()]), 0, false);
        } else if constexpr (i.first() == "st") {
            access(r, place_of<i>(r, o[0]), 1, true);
        } else if constexpr (i.first() == "mov") {
            r.set(o[0], a);
        } else if constexpr (i.is("prmt.b32")) {
            r.set(o[0], byte_permute((uint32_t)a, (uint32_t)b, (uint32_t)c));
        } else if constexpr (i.is("shr.u32")) {
            r.set(o[0], b < 32 ? (uint32_t)a >> b : 0);
        } else if constexpr (i.is("lop3.b32")) {
            const uint64_t table = r.get(o[4]);
            uint64_t out = 0;
            for (int n = 0; n < 8; ++n) {
                if (table >> n & 1) out |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
            }
            r.set(o[0], (uint32_t)out);
        } else if constexpr (i.is("mul.rn.f32")) {
            r.set(o[0], from_float(as_float(a) * as_float(b)));
        } else if constexpr (i.is("add.rn.f32")) {
            r.set(o[0], from_float(as_float(a) + as_float(b)));
        } else if constexpr (i.is("sub.rn.f32")) {
            r.set(o[0], from_float(as_float(a) - as_float(b)));
        } else if constexpr (i.is("add.rm.f32") || i.is("add.rp.f32")) {
            r.set(o[0], from_float(directed_sum(as_float(a), as_float(b), i.is("add.rp.f32"))));
        } else if constexpr (i.is("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")) {
            Tensors all{};
            for (int n = 0; n < 4; ++n) all.a[n] = (uint32_t)r.get(o[4 + n]), all.c[n] = (uint32_t)r.get(o[10 + n]);
            for (int n = 0; n < 2; ++n) all.b[n] = (uint32_t)r.get(o[8 + n]);
            tensor_step(all);
            for (int n = 0; n < 4; ++n) r.set(o[n], all.c[n]);
        } else if constexpr (i.is("ldmatrix.sync.aligned.m8n8.x4.shared.b16") ||
                             i.is("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16")) {
            uint32_t words[4];
            load_matrices(r.get(o[4]), words, i.has("trans"));
            for (int n = 0; n < 4; ++n) r.set(o[n], words[n]);
        } else if constexpr (i.is("div.rn.f32")) {
            r.set(o[0], from_float(as_float(a) / as_float(b)));
        } else if constexpr (i.is("cvt.rn.f32.f64")) {
            r.set(o[0], from_float((float)as_double(a)));
        } else if constexpr (i.is("sqrt.rn.f32")) {
            r.set(o[0], from_float(__builtin_sqrtf(as_float(a))));
        } else if constexpr (i.is("cvt.rn.bf16x2.f32")) {  // the first source goes to the upper half
            r.set(o[0], bfloat16_bits(as_float(b)) | bfloat16_bits(as_float(a)) << 16);
        } else if constexpr (i.is("fma.rn.f32")) {
            r.set(o[0], from_float(__builtin_fmaf(as_float(a), as_float(b), as_float(c))));
        } else if constexpr (i.is("fma.rn.sat.f32")) {
            const float sum = __builtin_fmaf(as_float(a), as_float(b), as_float(c));
            r.set(o[0], from_float(sum > 0 ? sum < 1 ? sum : 1 : 0));  // NaN gives 0
        } else if constexpr (i.is("fma.rn.f64")) {
            r.set(o[0], __builtin_bit_cast(uint64_t, __builtin_fma(as_double(a), as_double(b), as_double(c))));
        } else if constexpr (i.is("lg2.approx.ftz.f32")) {  // as far off as the manual allows
            r.set(o[0], from_float(__builtin_log2f(as_float(a)) * (a & 1 ? 1 + 0x1p-22f : 1 - 0x1p-22f)));
        } else if constexpr (i.is("ex2.approx.ftz.f32")) {
            r.set(o[0], from_float(__builtin_exp2f(as_float(a)) * (a & 1 ? 1 - 0x1p-22f : 1 + 0x1p-22f)));
        } else if constexpr (i.is("fma.rz.f32")) {
            r.set(o[0], from_float(fma_toward_zero(as_float(a), as_float(b), as_float(c))));
        } else if constexpr (i.is("mul.rn.f16x2")) {
            const uint64_t low = half_bits(half_value(a) * half_value(b));
            r.set(o[0], low | half_bits(half_value(a >> 16) * half_value(b >> 16)) << 16);
        } else if constexpr (i.is("mul.rn.bf16x2")) {
            const uint64_t low = bfloat16_bits(bfloat16_value(a & 0xFFFF) * bfloat16_value(b & 0xFFFF));
            r.set(o[0], low | bfloat16_bits(bfloat16_value(a >> 16) * bfloat16_value(b >> 16)) << 16);
        } else if constexpr (i.is("fma.rn.f16x2")) {
            const uint64_t low = half_bits(few_digits_fma(half_value(a), half_value(b), half_value(c)));
            r.set(o[0], low | half_bits(few_digits_fma(half_value(a >> 16), half_value(b >> 16), half_value(c >> 16))) << 16);
        } else if constexpr (i.is("fma.rn.bf16x2")) {
            const auto one = [&](int at) {
                return bfloat16_bits(few_digits_fma(bfloat16_value(a >> at & 0xFFFF), bfloat16_value(b >> at & 0xFFFF),
                                                    bfloat16_value(c >> at & 0xFFFF)));
            };
            r.set(o[0], one(0) | one(16) << 16);
        } else if constexpr (i.is("set.ge.u32.bf16x2")) {
            const auto one = [&](int at) { return bfloat16_value(a >> at & 0xFFFF) >= bfloat16_value(b >> at & 0xFFFF); };
            r.set(o[0], (one(0) ? 0xFFFFu : 0) | (one(16) ? 0xFFFF0000u : 0));
        } else if constexpr (i.is("abs.f16x2") || i.is("abs.bf16x2")) {
            r.set(o[0], a & 0x7FFF7FFF);
        } else if constexpr (i.is("abs.f32")) {
            r.set(o[0], a & 0x7FFFFFFF);
        } else if constexpr (i.is("cvt.rz.f16x2.f32")) {  // the first source goes to the upper half
            r.set(o[0], half_bits_down(as_float(b)) | half_bits_down(as_float(a)) << 16);
        } else if constexpr (i.is("cvt.rn.satfinite.e4m3x2.f32")) {
            r.set(o[0], e4m3_bits(as_float(b)) | e4m3_bits(as_float(a)) << 8);
        } else if constexpr (i.is("min.xorsign.abs.bf16x2")) {
            r.set(o[0], smaller_bfloat16((uint32_t)a, (uint32_t)b) | smaller_bfloat16((uint32_t)a >> 16, (uint32_t)b >> 16) << 16);
        } else if constexpr (i.is("max.NaN.xorsign.abs.bf16x2")) {
            r.set(o[0], larger_bfloat16((uint32_t)a, (uint32_t)b) | larger_bfloat16((uint32_t)a >> 16, (uint32_t)b >> 16) << 16);
        } else if constexpr (i.is("max.NaN.f32")) {
            const float x = as_float(a), y = as_float(b);
            r.set(o[0], x != x || y != y ? 0x7FFFFFFFu : x == y ? a & b : x > y ? a : b);
        } else if constexpr (i.is("cvt.f32.f16")) {
            r.set(o[0], from_float(half_value(a)));
        } else if constexpr (i.is("selp.u32") || i.is("selp.b32")) {
            r.set(o[0], c ? a : b);
        } else if constexpr (i.is("cvta.to.shared.u64")) {
            r.set(o[0], shared_address((const void*)a));
        } else if constexpr (i.has("mbarrier.init")) {
            barrier_init(place_of<i>(r, o[0]), (uint32_t)a);
        } else if constexpr (i.has("mbarrier.arrive.expect_tx")) {
            barrier_arrive(place_of<i>(r, o[i.count - 2]), (uint32_t)r.get(o[i.count - 1]));
        } else if constexpr (i.has("mbarrier.arrive")) {
            barrier_arrive(place_of<i>(r, o[i.count - 1]), 0);
        } else if constexpr (i.has("mbarrier.try_wait.parity") || i.has("mbarrier.test_wait.parity")) {
            barrier_wait(place_of<i>(r, o[1]), (uint32_t)b);
            r.set(o[0], 1);
        } else if constexpr (i.has("cp.async.cg.shared.global") || i.has("cp.async.ca.shared.global")) {
            copy_later(shared_place(r.get(o[0])), a, (uint32_t)b, i.count > 3 ? (uint32_t)c : (uint32_t)b);
        } else if constexpr (i.is("cp.async.commit_group")) {
            copies_commit();
        } else if constexpr (i.is("cp.async.wait_group")) {
            copies_wait((uint32_t)r.get(o[0]));
        } else if constexpr (i.is("cp.async.wait_all")) {
            copies_wait(ALL_COPIES);
        } else if constexpr (i.has("cp.async.bulk") && i.has("mbarrier::complete_tx::bytes")) {
            copy_in(shared_place(r.get(o[0])), a, (uint32_t)b, shared_place(c));
        } else if constexpr (i.has("cp.async.bulk.global.shared::cta")) {
            copy_out(r.get(o[0]), shared_place(a), (uint32_t)b);
        } else if constexpr (i.first() == "createpolicy") {
            r.set(o[0], 0);  // there is no L2
        } else if constexpr (i.first() == "fence" || i.has("commit_group") || i.has("wait_group") ||
                             i.has("barrier.cluster")) {
            // copies out of shared memory leave at once, one thread runs at a time, and CTAs share no memory
        } else {
            static_assert(NEVER<Step>, "this PTX instruction has no entry in gpu/emulate/ptx.hpp");
        }
    }

    static void run(Registers& r) {
        if (i.guard >= 0 && (r.slot[i.guard < 0 ? 0 : i.guard] != 0) == i.negated) return;
        execute(r);
    }
};

template <char kind, class T>
struct Result {
    T& value;
    bool read;
    uint64_t before() const { return read ? bits_of(value) : POISONED; }
    void after(uint64_t bits) const {
        if constexpr (std::is_same_v<T, double>) value = as_double(bits);
        else if constexpr (std::is_floating_point_v<T>) value = as_float(bits);
        else value = (T)bits;
    }
    static constexpr uint64_t POISONED = 0xB7B7B7B7B7B7B7B7u;
    static uint64_t bits_of(const T& value) {
        if constexpr (std::is_same_v<T, double>) return __builtin_bit_cast(uint64_t, value);
        else if constexpr (std::is_floating_point_v<T>) return __builtin_bit_cast(uint32_t, value);
        else return (uint64_t)(std::make_unsigned_t<T>)value;
    }
};

template <char kind, class T>
struct Given {
    uint64_t bits;
    uint64_t before() const { return bits; }
    void after(uint64_t) const {}
};

template <char kind, class T>
inline Result<kind, T> out(T& value) {
    static_assert(sizeof(T) == (kind == 'l' || kind == 'd' ? 8 : kind == 'h' ? 2 : 4), "operand of another size than its register");
    return {value, false};
}
template <char kind, class T>
inline Result<kind, T> in_out(T& value) {
    return {value, true};
}
template <char kind, class T>
inline Given<kind, T> in(T value) {
    if constexpr (std::is_pointer_v<T>) return {(uint64_t)value};
    else if constexpr (std::is_same_v<T, float>) return {__builtin_bit_cast(uint32_t, value)};
    else if constexpr (std::is_same_v<T, double>) return {__builtin_bit_cast(uint64_t, value)};
    else if constexpr (std::is_same_v<T, bool>) return {(uint64_t)value};
    else if constexpr (kind == 'l') return {(uint64_t)value};
    else return {(uint64_t)(uint32_t)value};
}

template <Text text, int... number, class... Operands>
inline void run_all(std::integer_sequence<int, number...>, const Operands&... operands) {
    Registers registers{};
    int slot = 0;
    ((registers.slot[slot++] = operands.before()), ...);
    (Step<text, number>::run(registers), ...);
    slot = 0;
    (operands.after(registers.slot[slot++]), ...);
}

template <Text text, class... Operands>
inline void run(const Operands&... operands) {
    run_all<text>(std::make_integer_sequence<int, parse<text>().count>{}, operands...);
}

}  // namespace emulation
