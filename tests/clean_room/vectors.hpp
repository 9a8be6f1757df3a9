// The vectors folder as vectors/README.md describes it: JSON files, and safetensors for the larger ones.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "encode.hpp"
#include "json.hpp"
#include "matrix.hpp"

struct Array {
    std::string dtype;
    std::vector<std::size_t> shape;
    Words words;
    std::size_t rows() const {  // of the last axis
        std::size_t count = 1;
        for (std::size_t i = 0; i + 1 < shape.size(); i++) count *= shape[i];
        return count;
    }
    std::size_t columns() const { return shape.empty() ? 1 : shape.back(); }
    Matrix matrix() const {
        Matrix out(rows(), columns());
        out.words = words;
        return out;
    }
};

struct Vector {
    std::string id, operation;
    Profile profile;
    Json params, arguments;  // of the group, of the vector
    std::vector<std::pair<std::string, Array>> inputs, outputs;

    const Array* find(std::string_view name) const {
        for (const auto& [key, array] : inputs)
            if (key == name) return &array;
        return nullptr;
    }
    const Array& operator[](std::string_view name) const {
        if (const Array* found = find(name)) return *found;
        throw std::runtime_error(id + " has no input " + std::string(name));
    }
    std::string text(std::string_view name) const { return params[name].text; }
    std::int64_t number(std::string_view name) const {
        const Json* found = arguments.find(name);
        return found ? found->number : params[name].number;
    }
};

inline std::size_t width_of(const std::string& dtype) {
    std::size_t bits = dtype == "bfloat16" ? 16 : std::stoul(dtype.substr(dtype.find_first_of("0123456789")));
    return bits / 8;
}

inline Words little_endian(std::string_view bytes, std::size_t width) {
    Words out(bytes.size() / width);
    for (std::size_t i = 0; i < out.size(); i++)
        for (std::size_t n = width; n-- > 0;) out[i] = out[i] << 8 | static_cast<unsigned char>(bytes[i * width + n]);
    return out;
}

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + path.string());
    std::ostringstream all;
    all << in.rdbuf();
    return all.str();
}

inline std::vector<std::size_t> shape_of(const Json& list) {
    std::vector<std::size_t> out;
    for (const Json& n : list.items) out.push_back(n.number);
    return out;
}

inline Array from_hex(const Json& record) {
    Array out{record["dtype"].text, shape_of(record["shape"]), {}};
    const std::string& hex = record["hex"].text;
    std::string bytes;
    auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1]));
    out.words = little_endian(bytes, width_of(out.dtype));
    return out;
}

inline std::string dtype_of(const std::string& safetensors) {  // U8, I32, BF16, F32, ...
    if (safetensors == "BF16") return "bfloat16";
    std::string kind = safetensors[0] == 'U' ? "uint" : safetensors[0] == 'I' ? "int" : "float";
    return kind + safetensors.substr(1);
}

inline void read_tensors(const std::filesystem::path& path, Vector& vector) {
    std::string data = read_file(path);
    std::size_t head = little_endian(std::string_view(data).substr(0, 8), 8)[0];
    Json header = Parser(std::string_view(data).substr(8, head)).document();
    for (const auto& [name, record] : header.fields) {
        if (name == "__metadata__") continue;
        Array array{dtype_of(record["dtype"].text), shape_of(record["shape"]), {}};
        std::size_t first = record["data_offsets"].items[0].number, stop = record["data_offsets"].items[1].number;
        std::string_view bytes = std::string_view(data).substr(8 + head + first, stop - first);
        array.words = little_endian(bytes, width_of(array.dtype));
        bool input = name.rfind("inputs.", 0) == 0;
        (input ? vector.inputs : vector.outputs).emplace_back(name.substr(name.find('.') + 1), array);
    }
}

inline Profile profile_of(const Json& record) {
    Profile p;
    p.scale_rule = record["scale_rule"].text, p.rounding = record["rounding"].text, p.ties = record["ties"].text;
    p.overflow = record["overflow"].text, p.negative_zero = record["negative_zero"].text;
    p.nonfinite = record["nonfinite"].text;
    p.random_bits = int(record["random_bits"].number), p.zero_scale = int(record["zero_scale"].number);
    p.amax_floor = record["amax_floor"].null() ? -1 : record["amax_floor"].number;
    return p;
}

inline void read_document(const std::filesystem::path& folder, const Json& document, std::vector<Vector>& out) {
    for (const Json& group : document["groups"].items)
        for (const Json& entry : group["vectors"].items) {
            Vector v;
            v.id = entry["id"].text, v.operation = document["operation"].text;
            v.profile = profile_of(document["profile"]), v.params = group["params"];
            if (const Json* arguments = entry.find("arguments")) v.arguments = *arguments;
            if (const Json* tensor = entry.find("tensor")) {
                read_tensors(folder / tensor->text, v);
            } else {
                for (const auto& [name, record] : entry["inputs"].fields) v.inputs.emplace_back(name, from_hex(record));
                for (const auto& [name, record] : entry["outputs"].fields)
                    v.outputs.emplace_back(name, from_hex(record));
            }
            out.push_back(std::move(v));
        }
}

inline std::vector<Vector> read_vectors(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::vector<Vector> out;
    for (const auto& path : files) {
        std::string text = read_file(path);
        if (text.find("\"refnum.vectors/1\"") > 64) continue;  // notes, history, schemas, certificates
        read_document(folder, Parser(text).document(), out);
    }
    return out;
}
