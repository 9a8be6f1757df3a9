// An implementation of the specification from its text alone, in integers. It shares nothing with the model: it reads
// the vectors as data and computes every answer again.
//
//   clean_room VECTORS            judge every vector; the exit status is 1 if one differs
//   clean_room VECTORS --parts    for every wrong reading of a part, the vectors that see it
//   clean_room --silu FILE        write silu and sigmoid of all bfloat16 numbers as little-endian float32 (N11.1)
#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>

#include "operations.hpp"

// Whether an answer has the shape and the words of an output; a vector of one axis is a matrix of one row.
static bool same(const Array& want, const Matrix& got) {
    if (want.rows() != got.rows || want.columns() != got.columns) return false;
    if (!WRONG("N0.1") || want.dtype.find("float") == std::string::npos) return want.words == got.words;
    Word sign = Word(1) << (8 * width_of(want.dtype) - 1);
    for (std::size_t i = 0; i < got.words.size(); i++) {
        Word word = got.words[i] == sign ? 0 : got.words[i];
        if (word != want.words[i]) return false;
    }
    return true;
}

static std::string difference(const Vector& v) {  // empty if every output agrees
    const Operation& operation = *operation_of(v);
    Answers answers = operation.solve(v);
    if (answers.size() != v.outputs.size()) return "another number of outputs";
    for (const auto& [name, want] : v.outputs) {
        std::size_t at = 0;
        while (at < answers.size() && std::string_view(operation.outputs[at]).find(name) == std::string::npos) at++;
        if (at == answers.size()) return "no output " + name;
        if (!same(want, answers[at])) return name;
    }
    return "";
}

static int judge(const std::vector<Vector>& vectors) {
    std::map<std::string, std::pair<int, int>> counts;  // operation -> vectors, vectors that differ
    std::map<std::string, int> unknown;
    for (const Vector& v : vectors) {
        if (!operation_of(v)) {
            unknown[v.operation]++;
            continue;
        }
        std::string wrong = difference(v);
        counts[v.operation].first++;
        if (wrong.empty()) continue;
        counts[v.operation].second++;
        std::cout << "differs " << v.operation << " " << v.id << " " << wrong << "\n";
    }
    int differ = 0;
    for (const auto& [name, count] : counts) {
        std::cout << "operation " << name << " " << count.first << " " << count.second << "\n";
        differ += count.second;
    }
    for (const auto& [name, count] : unknown) std::cout << "unknown " << name << " " << count << "\n";
    return differ ? 1 : 0;
}

// A wrong reading may leave the text's own bounds; a vector that it cannot even answer sees it, too.
static bool sees(const Vector& v) {
    try {
        return !difference(v).empty();
    } catch (const std::exception&) {
        return true;
    }
}

// The vectors whose right answer consults each part: no other can see a wrong reading of it.
static std::vector<std::vector<const Vector*>> consulting(const std::vector<Vector>& vectors) {
    std::vector<std::vector<const Vector*>> out(PART_COUNT);
    for (const Vector& v : vectors) {
        if (!operation_of(v)) continue;
        std::fill_n(consulted, PART_COUNT, false);
        difference(v);
        for (std::size_t i = 0; i < PART_COUNT; i++)
            if (consulted[i]) out[i].push_back(&v);
    }
    return out;
}

static int parts(const std::vector<Vector>& vectors) {
    std::vector<std::vector<const Vector*>> asked = consulting(vectors);
    for (chosen = 0; chosen < PART_COUNT; chosen++) {
        int count = 0;
        std::string first;
        for (const Vector* v : asked[chosen])
            if (sees(*v) && ++count <= 3) first += " " + v->operation + ":" + v->id;
        const Part& read = PARTS[chosen];
        std::cout << read.id << "\t" << read.wrong << "\t" << count << "\t" << first.substr(count > 0) << "\n";
    }
    return 0;
}

static int silu_table(const char* path) {
    std::ofstream out(path, std::ios::binary);
    for (int which = 0; which < 2; which++)
        for (Word gate = 0; gate < 65536; gate++) {
            Word bits = which ? logistic(gate).sigmoid : logistic(gate).silu;
            for (int n = 0; n < 4; n++) out.put(static_cast<char>(bits >> 8 * n & 255));
        }
    return out ? 0 : 1;
}

int main(int count, char** words) try {
    if (count == 3 && !std::strcmp(words[1], "--silu")) return silu_table(words[2]);
    bool by_part = count == 3 && !std::strcmp(words[2], "--parts");
    if (count != 2 && !by_part) {
        std::cerr << "usage: clean_room VECTORS [--parts] | clean_room --silu FILE\n";
        return 2;
    }
    std::vector<Vector> vectors = read_vectors(words[1]);
    return by_part ? parts(vectors) : judge(vectors);
} catch (const std::exception& error) {
    std::cerr << "clean_room: " << error.what() << "\n";
    return 2;
}
