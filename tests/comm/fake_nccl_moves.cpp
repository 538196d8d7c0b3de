// What operations of the NCCL in main memory do once streams come to them.

#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <cstring>

#include "tests/comm/fake_nccl.h"

namespace tandem {

namespace {

at::ScalarType dtype_of(NcclDataType dtype) {
  switch (dtype) {
    case NcclDataType::int8:
      return at::kChar;
    case NcclDataType::uint8:
      return at::kByte;
    case NcclDataType::int32:
      return at::kInt;
    case NcclDataType::int64:
      return at::kLong;
    case NcclDataType::float16:
      return at::kHalf;
    case NcclDataType::float32:
      return at::kFloat;
    case NcclDataType::float64:
      return at::kDouble;
    case NcclDataType::bfloat16:
      break;
  }
  return at::kBFloat16;
}

}  // namespace

size_t FakeNccl::bytes_of(const Part& part) {
  return part.count * c10::elementSize(dtype_of(part.dtype));
}

bool FakeNccl::alike(const Part& a, const Part& b) {
  return a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && a.op == b.op &&
         a.other == b.other;
}

at::Tensor FakeNccl::reduced(const std::vector<Part*>& parts, size_t count) {
  at::Tensor result;
  for (const Part* part : parts) {
    const auto mine = at::from_blob(
        const_cast<void*>(part->input), {static_cast<int64_t>(count)},
        dtype_of(part->dtype));
    if (!result.defined()) {
      result = mine.clone();
    } else if (part->op == NcclRedOp::sum) {
      result.add_(mine);
    } else {
      result = part->op == NcclRedOp::min ? at::minimum(result, mine)
                                          : at::maximum(result, mine);
    }
  }
  return result;
}

// `parts`: a collective's, of all ranks in rank order.
void FakeNccl::move_data(const std::vector<Part*>& parts) {
  const Part& first = *parts[0];
  const size_t bytes = bytes_of(first);
  const size_t size = parts.size();
  if (first.kind == Part::Kind::all_reduce) {
    const auto result = reduced(parts, first.count);
    for (const Part* part : parts) {
      std::memcpy(part->output, result.data_ptr(), bytes);
    }
  } else if (first.kind == Part::Kind::broadcast) {
    const void* from = parts[static_cast<size_t>(first.other)]->input;
    for (const Part* part : parts) {
      std::memmove(part->output, from, bytes);
    }
  } else if (first.kind == Part::Kind::reduce_scatter) {
    const auto result = reduced(parts, first.count * size);
    for (size_t rank = 0; rank < size; ++rank) {
      const char* slice = static_cast<const char*>(result.data_ptr()) + rank * bytes;
      std::memcpy(parts[rank]->output, slice, bytes);
    }
  } else {
    std::vector<char> all(size * bytes);
    for (size_t rank = 0; rank < size; ++rank) {
      std::memcpy(all.data() + rank * bytes, parts[rank]->input, bytes);
    }
    for (const Part* part : parts) {
      std::memcpy(part->output, all.data(), all.size());
    }
  }
}

// The operation that a rank's stream has come to.
FakeNccl::Parts* FakeNccl::head_of(const CommPtr& comm) {
  if (!comm || comm->operations.empty()) {
    return nullptr;
  }
  const auto& first = comm->operations.front();
  const auto& tasks = first->stream->tasks;
  return !tasks.empty() && tasks.front().owner == first.get() ? &first->parts : nullptr;
}

// The peer's part of a message, where its stream has come to it.
FakeNccl::Part* FakeNccl::answer_to(const Part& part, const Comm& comm) {
  Parts* peer = head_of(comm.clique->ranks[static_cast<size_t>(part.other)]);
  const auto wanted =
      part.kind == Part::Kind::send ? Part::Kind::recv : Part::Kind::send;
  for (size_t i = 0; peer != nullptr && i < peer->size(); ++i) {
    Part& theirs = (*peer)[i];
    if (!theirs.done && theirs.kind == wanted && theirs.other == comm.rank) {
      return &theirs;
    }
  }
  return nullptr;
}

bool FakeNccl::can_run(const Comm& comm, const Parts& parts) {
  const auto done = [](const Part& part) { return part.done; };
  if (comm.gone || std::all_of(parts.begin(), parts.end(), done)) {
    return true;
  }
  if (parts[0].message()) {
    return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
      return !part.done && answer_to(part, comm) != nullptr;
    });
  }
  const auto& ranks = comm.clique->ranks;
  return std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) {
    const Parts* other = head_of(rank);
    return other != nullptr && !(*other)[0].message() && !(*other)[0].done;
  });
}

// It ends in a step of its own: ranks do not end at the same moment.
bool FakeNccl::run(Comm& comm, Parts& parts) {
  const auto done = [](const Part& part) { return part.done; };
  if (comm.gone || std::all_of(parts.begin(), parts.end(), done)) {
    comm.operations.pop_front();
    return true;
  }
  if (parts[0].message()) {
    move_message(comm, parts);
  } else {
    move_collective(comm);
  }
  return false;
}

void FakeNccl::move_collective(const Comm& comm) {
  std::vector<Part*> parts;
  for (const auto& rank : comm.clique->ranks) {
    parts.push_back(&(*head_of(rank))[0]);
    parts.back()->done = true;
  }
  for (const Part* part : parts) {
    if (!alike(*part, *parts[0])) {
      streams_->wrong("ranks call different collectives");
      return;
    }
  }
  move_data(parts);
}

void FakeNccl::move_message(const Comm& comm, Parts& parts) {
  for (auto& part : parts) {
    Part* answer = part.done ? nullptr : answer_to(part, comm);
    if (answer == nullptr) {
      continue;
    }
    const bool sends = part.kind == Part::Kind::send;
    const Part& from = sends ? part : *answer;
    const Part& to = sends ? *answer : part;
    if (bytes_of(from) != bytes_of(to)) {
      streams_->wrong("a message of another size");
    }
    std::memmove(to.output, from.input, std::min(bytes_of(from), bytes_of(to)));
    part.done = answer->done = true;
    return;
  }
}

}  // namespace tandem
