#include "tandem/formats/pickle.h"

#include <fmt/core.h>

#include <cstring>
#include <map>

#include "tandem/base/error.h"

namespace tandem {

namespace {

using Kind = PickleValue::Kind;

// Opcodes that PyTorch writes for tensors, numbers, texts and their containers.
// See pickletools.py for each opcode.
namespace op {
enum Opcode : unsigned char {
  mark = '(',
  stop = '.',
  bin_float = 'G',
  bin_int = 'J',
  bin_int1 = 'K',
  bin_int2 = 'M',
  none = 'N',
  bin_persistent_id = 'Q',
  reduce = 'R',
  bin_unicode = 'X',
  empty_list = ']',
  append = 'a',
  build = 'b',
  global = 'c',
  appends = 'e',
  bin_get = 'h',
  long_bin_get = 'j',
  bin_put = 'q',
  long_bin_put = 'r',
  set_item = 's',
  tuple = 't',
  set_items = 'u',
  empty_dict = '}',
  empty_tuple = ')',
  protocol = 0x80,
  new_object = 0x81,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  new_true = 0x88,
  new_false = 0x89,
  long1 = 0x8a,
};
}  // namespace op

constexpr unsigned char kNewestProtocol = 2;

class Reader {
 public:
  Reader(
      const std::string& bytes, const std::string& path, size_t most_values,
      std::deque<PickleValue>& values)
      : bytes_(bytes), path_(path), most_values_(most_values), values_(values) {}

  const PickleValue* read() {
    for (;;) {
      const auto opcode = number_of<unsigned char>();
      if (opcode == op::stop) {
        return pop();
      }
      if (!read_scalar(opcode) && !read_container(opcode) && !read_memo(opcode) &&
          !read_object(opcode)) {
        fail(fmt::format(
            "has the unknown pickle opcode {:#x}", static_cast<int>(opcode)));
      }
    }
  }

 private:
  bool read_scalar(unsigned char opcode) {
    switch (opcode) {
      case op::none:
        push(Kind::other);
        return true;
      case op::bin_float:
        take(sizeof(double));
        push(Kind::other);
        return true;
      case op::new_true:
      case op::new_false:
        push_number(opcode == op::new_true ? 1 : 0);
        return true;
      case op::bin_int:
        push_number(number_of<int32_t>());
        return true;
      case op::bin_int1:
        push_number(number_of<unsigned char>());
        return true;
      case op::bin_int2:
        push_number(number_of<uint16_t>());
        return true;
      case op::long1:
        read_long();
        return true;
      case op::bin_unicode: {
        const auto size = number_of<uint32_t>();
        push(Kind::text)->text = bytes_.substr(take(size), size);
        return true;
      }
      default:
        return false;
    }
  }

  bool read_container(unsigned char opcode) {
    switch (opcode) {
      case op::mark:
        count_one();
        marks_.push_back(stack_.size());
        return true;
      case op::empty_tuple:
      case op::empty_list:
        push(Kind::sequence);
        return true;
      case op::empty_dict:
        push(Kind::dict);
        return true;
      case op::tuple:
        push_sequence(pop_to_mark());
        return true;
      case op::tuple1:
      case op::tuple2:
      case op::tuple3:
        push_sequence(pop_some(static_cast<size_t>(opcode - op::tuple1) + 1));
        return true;
      case op::append:
        add(Kind::sequence, pop_some(1));
        return true;
      case op::appends:
        add(Kind::sequence, pop_to_mark());
        return true;
      case op::set_item:
        add(Kind::dict, pop_some(2));
        return true;
      case op::set_items:
        add(Kind::dict, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  bool read_memo(unsigned char opcode) {
    switch (opcode) {
      case op::bin_put:
        remember(number_of<unsigned char>());
        return true;
      case op::long_bin_put:
        remember(number_of<uint32_t>());
        return true;
      case op::bin_get:
        recall(number_of<unsigned char>());
        return true;
      case op::long_bin_get:
        recall(number_of<uint32_t>());
        return true;
      default:
        return false;
    }
  }

  bool read_object(unsigned char opcode) {
    switch (opcode) {
      case op::protocol:
        if (number_of<unsigned char>() > kNewestProtocol) {
          fail("has a newer pickle protocol");
        }
        return true;
      case op::global: {
        const std::string module = line();
        push(Kind::global)->text = module + " " + line();
        return true;
      }
      case op::reduce:
      case op::new_object:
        call(pop_some(2));
        return true;
      case op::bin_persistent_id: {
        auto id = pop_some(1);
        push(Kind::persistent)->items = std::move(id);
        return true;
      }
      case op::build:
        // Ignores an object's attributes, such as the versions in a state dict.
        pop();
        top();
        return true;
      default:
        return false;
    }
  }

  void call(std::vector<const PickleValue*> callee_and_arguments) {
    const auto& callee = *callee_and_arguments[0];
    const bool is_dict =
        callee.kind == Kind::global && callee.text == "collections OrderedDict";
    auto* value = push(is_dict ? Kind::dict : Kind::call);
    if (!is_dict) {
      value->items = std::move(callee_and_arguments);
    }
  }

  // Adds items to the container on top of the stack. Ignores items if the container has
  // another kind, such as a subclass, because no reader uses these items.
  void add(Kind kind, const std::vector<const PickleValue*>& items) {
    auto* container = top();
    if (kind == Kind::dict && items.size() % 2 != 0) {
      fail("has a key without a value");
    }
    if (container->kind == kind) {
      container->items.insert(container->items.end(), items.begin(), items.end());
    }
  }

  void read_long() {
    const auto size = number_of<unsigned char>();
    const size_t at = take(size);
    int64_t number = 0;
    if (size > sizeof(number)) {
      push(Kind::other);
      return;
    }
    if (size > 0 && (static_cast<unsigned char>(bytes_[at + size - 1]) & 0x80) != 0) {
      number = -1;
    }
    std::memcpy(&number, bytes_.data() + at, size);
    push_number(number);
  }

  // --- bytes ---

  size_t take(size_t size) {
    if (size > bytes_.size() - next_) {
      fail("ends inside its pickle");
    }
    next_ += size;
    return next_ - size;
  }

  template <typename T>
  T number_of() {
    T number;
    const size_t at = take(sizeof(T));
    std::memcpy(&number, bytes_.data() + at, sizeof(T));
    return number;
  }

  std::string line() {
    const size_t end = bytes_.find('\n', next_);
    if (end == std::string::npos) {
      fail("ends inside its pickle");
    }
    std::string text = bytes_.substr(next_, end - next_);
    next_ = end + 1;
    return text;
  }

  // --- the stack ---

  void count_one() {
    if (++count_ > most_values_) {
      throw ConfigError(
          "[weights] '" + path_ + "' has more than " + std::to_string(most_values_) +
          " values in its pickle; name a file of tensors");
    }
  }

  PickleValue* push(Kind kind) {
    count_one();
    values_.emplace_back();
    values_.back().kind = kind;
    stack_.push_back(&values_.back());
    return stack_.back();
  }

  void push_number(int64_t number) {
    push(Kind::number)->number = number;
  }

  void push_sequence(std::vector<const PickleValue*> items) {
    push(Kind::sequence)->items = std::move(items);
  }

  PickleValue* top() {
    if (stack_.empty()) {
      fail("has a broken pickle");
    }
    return stack_.back();
  }

  PickleValue* pop() {
    auto* value = top();
    stack_.pop_back();
    return value;
  }

  std::vector<const PickleValue*> pop_some(size_t count) {
    if (count > stack_.size()) {
      fail("has a broken pickle");
    }
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<const PickleValue*> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    return items;
  }

  std::vector<const PickleValue*> pop_to_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) {
      fail("has a broken pickle");
    }
    const size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return pop_some(count);
  }

  void remember(uint32_t key) {
    count_one();
    memo_[key] = top();
  }

  void recall(uint32_t key) {
    count_one();
    const auto found = memo_.find(key);
    if (found == memo_.end()) {
      fail("has a broken pickle");
    }
    stack_.push_back(found->second);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(
        "[weights] '" + path_ + "' " + what +
        "; write it with torch.save(model.state_dict(), path) and no other options");
  }

  const std::string& bytes_;
  const std::string& path_;
  const size_t most_values_;
  std::deque<PickleValue>& values_;
  size_t next_ = 0;
  size_t count_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, PickleValue*> memo_;
};

}  // namespace

Pickle::Pickle(const std::string& bytes, const std::string& path, size_t most_values) {
  root_ = Reader(bytes, path, most_values, values_).read();
}

}  // namespace tandem
