#include "tandem/exec/compiled/kernel_rows.h"

#include <utility>

namespace tandem {

// This template is not in the unnamed namespace, because it declares a function of the
// namespace tandem.
template <LayerKind kind>
KernelRow row_in_ops() {
  KernelRow kernel_row(KindTag<kind>);
  return kernel_row({});
}

namespace {

template <size_t... i>
std::vector<KernelRow> rows_in_ops(std::index_sequence<i...>) {
  return {row_in_ops<static_cast<LayerKind>(i)>()...};
}

}  // namespace

const std::vector<KernelRow>& kernel_rows() {
  static const auto rows = rows_in_ops(std::make_index_sequence<kNumLayerKinds>());
  return rows;
}

}  // namespace tandem
