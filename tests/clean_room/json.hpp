// Just enough JSON to read the vectors: objects, arrays, strings, integers, true, false, null.
#pragma once
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct Json {
    enum class Type { null, boolean, integer, text, list, object } type = Type::null;
    std::int64_t number = 0;
    std::string text;
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> fields;

    const Json* find(std::string_view name) const {
        for (const auto& [key, item] : fields)
            if (key == name) return &item;
        return nullptr;
    }
    const Json& operator[](std::string_view name) const {
        if (const Json* found = find(name)) return *found;
        throw std::runtime_error("no field " + std::string(name));
    }
    bool null() const { return type == Type::null; }
};

class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}
    Json document() {
        Json out = item();
        skip();
        if (at_ != text_.size()) fail("something after the document");
        return out;
    }

  private:
    std::string_view text_;
    std::size_t at_ = 0;

    [[noreturn]] void fail(const char* what) const {
        throw std::runtime_error(std::string("JSON, byte ") + std::to_string(at_) + ": " + what);
    }
    void skip() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) at_++;
    }
    char next() {
        skip();
        if (at_ == text_.size()) fail("the document ends early");
        return text_[at_];
    }
    bool take(char c) {
        if (next() != c) return false;
        at_++;
        return true;
    }
    void expect(char c) {
        if (!take(c)) fail("another character was expected");
    }
    Json word(std::string_view name, Json::Type type, std::int64_t number) {
        if (text_.substr(at_, name.size()) != name) fail("an unknown word");
        at_ += name.size();
        Json out;
        out.type = type, out.number = number;
        return out;
    }
    Json item() {
        char c = next();
        if (c == '{') return object();
        if (c == '[') return list();
        if (c == '"') return string();
        if (c == 'n') return word("null", Json::Type::null, 0);
        if (c == 't') return word("true", Json::Type::boolean, 1);
        if (c == 'f') return word("false", Json::Type::boolean, 0);
        return integer();
    }
    Json object() {
        Json out;
        out.type = Json::Type::object;
        expect('{');
        while (!take('}')) {
            if (!out.fields.empty()) expect(',');
            std::string key = string().text;
            expect(':');
            out.fields.emplace_back(key, item());
        }
        return out;
    }
    Json list() {
        Json out;
        out.type = Json::Type::list;
        expect('[');
        while (!take(']')) {
            if (!out.items.empty()) expect(',');
            out.items.push_back(item());
        }
        return out;
    }
    Json string() {
        Json out;
        out.type = Json::Type::text;
        expect('"');
        for (; at_ < text_.size() && text_[at_] != '"'; at_++) {
            if (text_[at_] == '\\') at_++;  // the character itself is enough here: no field that is read has an escape
            if (at_ < text_.size()) out.text += text_[at_];
        }
        at_++;
        return out;
    }
    Json integer() {
        Json out;
        out.type = Json::Type::integer;
        bool negative = take('-');
        if (at_ == text_.size() || text_[at_] < '0' || text_[at_] > '9') fail("no value");
        for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; at_++)
            out.number = 10 * out.number + (text_[at_] - '0');
        if (negative) out.number = -out.number;
        return out;
    }
};
