#pragma once

#include <type_traits>

namespace tandem {

/// Type that stands for one enumerator. A function that takes it has an overload per
/// kind, which the kind's source file defines. For example, optim/sgd.cpp defines
/// make_fused_optimizer(KindTag<OptimizerKind::sgd>, ...).
///
/// A table of all kinds declares the overloads in a template, so no list names them. A
/// kind without an overload is a link error. (Specializations of a template would have
/// to be declared before the table, and so in a list.)
template <auto kind>
using KindTag = std::integral_constant<decltype(kind), kind>;

}  // namespace tandem
