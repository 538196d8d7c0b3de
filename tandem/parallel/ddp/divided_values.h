#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {

/// How many chunks the tensors of a call are divided into.
class ChunkCount {
 public:
  explicit ChunkCount(int64_t num_replicas) : num_replicas_(num_replicas) {}

  /// The chunks of torch.chunk(tensor, num_replicas). Throws ConfigError for a tensor
  /// without a dimension, or that makes another number of chunks than one before it.
  std::vector<at::Tensor> divide(const at::Tensor& tensor);

  /// Of all tensors seen; `num_replicas` when there was none.
  int64_t value() const {
    return chunks_ < 0 ? num_replicas_ : chunks_;
  }

 private:
  int64_t num_replicas_;
  // -1 before the first tensor.
  int64_t chunks_ = -1;
  // Of the first tensor.
  int64_t rows_ = 0;
};

// LibTorch's optional, which was not always std::optional, too.
template <typename T, typename = void>
struct IsOptional : std::false_type {};
template <template <typename> class Optional, typename T>
struct IsOptional<
    Optional<T>, std::void_t<decltype(std::declval<Optional<T>>().has_value())>>
    : std::true_type {};

/// What each replica gets of an argument: chunks of a tensor, and of the tensors in a
/// vector, tuple, pair or optional; of anything else a copy.
template <typename T, typename = void>
class DividedValue {
 public:
  DividedValue(const T& whole, ChunkCount& /*count*/) : whole_(whole) {}
  T of(size_t /*replica*/) const {
    return whole_;
  }

 private:
  T whole_;
};

template <>
class DividedValue<at::Tensor> {
 public:
  DividedValue(const at::Tensor& whole, ChunkCount& count)
      : chunks_(whole.defined() ? count.divide(whole) : std::vector<at::Tensor>()) {}
  at::Tensor of(size_t replica) const {
    return chunks_.empty() ? at::Tensor() : chunks_[replica];
  }

 private:
  std::vector<at::Tensor> chunks_;
};

template <typename T>
class DividedValue<std::vector<T>> {
 public:
  DividedValue(const std::vector<T>& whole, ChunkCount& count) {
    for (const T& part : whole) {
      parts_.emplace_back(part, count);
    }
  }
  std::vector<T> of(size_t replica) const {
    std::vector<T> mine;
    for (const auto& part : parts_) {
      mine.push_back(part.of(replica));
    }
    return mine;
  }

 private:
  std::vector<DividedValue<T>> parts_;
};

template <typename Optional>
class DividedValue<Optional, std::enable_if_t<IsOptional<Optional>::value>> {
 public:
  DividedValue(const Optional& whole, ChunkCount& count) {
    if (whole.has_value()) {
      parts_.emplace_back(*whole, count);
    }
  }
  Optional of(size_t replica) const {
    return parts_.empty() ? Optional() : Optional(parts_[0].of(replica));
  }

 private:
  // One or none.
  std::vector<DividedValue<typename Optional::value_type>> parts_;
};

template <typename... Ts>
class DividedValue<std::tuple<Ts...>> {
 public:
  DividedValue(const std::tuple<Ts...>& whole, ChunkCount& count)
      : DividedValue(whole, count, std::index_sequence_for<Ts...>()) {}
  std::tuple<Ts...> of(size_t replica) const {
    return std::apply(
        [=](const auto&... parts) { return std::tuple<Ts...>(parts.of(replica)...); },
        parts_);
  }

 private:
  template <size_t... I>
  DividedValue(
      const std::tuple<Ts...>& whole, ChunkCount& count, std::index_sequence<I...>)
      : parts_{DividedValue<Ts>(std::get<I>(whole), count)...} {}

  std::tuple<DividedValue<Ts>...> parts_;
};

template <typename T, typename U>
class DividedValue<std::pair<T, U>> {
 public:
  DividedValue(const std::pair<T, U>& whole, ChunkCount& count)
      : first_(whole.first, count), second_(whole.second, count) {}
  std::pair<T, U> of(size_t replica) const {
    return {first_.of(replica), second_.of(replica)};
  }

 private:
  DividedValue<T> first_;
  DividedValue<U> second_;
};

/// One after the other along dimension 0; numbers become a vector.
at::Tensor concatenate(std::vector<at::Tensor> of_replicas);

/// Throws ConfigError that the replicas' outputs are lists of other lengths.
[[noreturn]] void refuse_lengths(size_t of_first, size_t of_other);

/// Makes one of what the replicas returned: see DataParallel. `of_replicas` in their
/// order, one at least.
template <typename T>
struct Gathered {
  template <typename U>
  struct No : std::false_type {};
  static_assert(
      No<T>::value,
      "tandem::DataParallel gathers tensors, and vectors, tuples and pairs of them; "
      "this forward() returns something else");
};

template <>
struct Gathered<at::Tensor> {
  static at::Tensor of(std::vector<at::Tensor> of_replicas) {
    return concatenate(std::move(of_replicas));
  }
};

// The value at `at` in each replica's output.
template <typename T, typename Outputs, typename At>
T gathered_at(Outputs& of_replicas, const At& at) {
  std::vector<T> values;
  for (auto& output : of_replicas) {
    values.push_back(at(output));
  }
  return Gathered<T>::of(std::move(values));
}

template <typename T>
struct Gathered<std::vector<T>> {
  static std::vector<T> of(std::vector<std::vector<T>> of_replicas) {
    std::vector<T> gathered;
    for (const auto& output : of_replicas) {
      if (output.size() != of_replicas[0].size()) {
        refuse_lengths(of_replicas[0].size(), output.size());
      }
    }
    for (size_t i = 0; i < of_replicas[0].size(); ++i) {
      gathered.push_back(
          gathered_at<T>(of_replicas, [=](auto& output) { return output[i]; }));
    }
    return gathered;
  }
};

template <typename... Ts>
struct Gathered<std::tuple<Ts...>> {
  static std::tuple<Ts...> of(std::vector<std::tuple<Ts...>> of_replicas) {
    return of(of_replicas, std::index_sequence_for<Ts...>());
  }

 private:
  template <size_t... I>
  static std::tuple<Ts...> of(
      std::vector<std::tuple<Ts...>>& of_replicas, std::index_sequence<I...>) {
    return {gathered_at<Ts>(
        of_replicas, [](auto& output) { return std::get<I>(output); })...};
  }
};

template <typename T, typename U>
struct Gathered<std::pair<T, U>> {
  static std::pair<T, U> of(std::vector<std::pair<T, U>> of_replicas) {
    return {
        gathered_at<T>(of_replicas, [](auto& output) { return output.first; }),
        gathered_at<U>(of_replicas, [](auto& output) { return output.second; })};
  }
};

}  // namespace tandem
