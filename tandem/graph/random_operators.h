#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "tandem/graph/operators.h"

namespace tandem {

/// Operators that draw random numbers.
///
/// A draw is a pure function of (seed, epoch, position of the sample, number of the
/// node, element) (core/dropout.h). So it does not depend on the number of ranks or on
/// the division of a batch, and it is the same in a resumed run. If a tensor has no
/// dimension for the samples, its draws depend on the position of the step instead, so
/// all ranks draw the same numbers.
///
/// In evaluation, dropout returns its input. The other operators return the mean of
/// their distribution, so that stochastic depth and added noise have no effect: 1 - p
/// for bernoulli(1 - p), 0 for randn(). cauchy_() returns its median. Integers are
/// drawn with seed 0.
///
/// The rows of graph/operators.cpp name these functions. Each throws c10::Error if
/// LibTorch refuses the arguments.

/// dropout, feature_dropout and their in-place forms: (input, p, train).
at::Tensor run_dropout(const OperatorCall& call);

/// alpha_dropout, feature_alpha_dropout and their in-place forms: (input, p, train).
///
/// Source: Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017, with the
/// constants of ATen/native/Dropout.cpp.
at::Tensor run_alpha_dropout(const OperatorCall& call);

/// rrelu and rrelu_: (self, lower, upper, training).
at::Tensor run_rrelu(const OperatorCall& call);

/// Operators that return random numbers of a distribution, such as bernoulli, randn and
/// exponential_.
at::Tensor run_distribution(const OperatorCall& call);

/// multinomial(self, num_samples, replacement).
at::Tensor run_multinomial(const OperatorCall& call);

/// randperm(n).
at::Tensor run_randperm(const OperatorCall& call);

/// lstm, gru, rnn_tanh and rnn_relu, with dropout between the layers. The input is not
/// a packed sequence. Returns the outputs of the operator.
std::vector<c10::IValue> run_recurrent(const OperatorCall& call);

/// Returns `x` after dropout with probability `p`, in training or in evaluation.
/// `shape` has the sizes of `x`, for the dimension of the samples.
at::Tensor dropped_out(
    const OperatorCall& call, const at::Tensor& x, const std::vector<Size>& shape,
    double p);

/// Returns whether an operator returns other numbers in each call, according to its
/// schema (a generator) or its tag in LibTorch. Operators with a probability of
/// dropout return the same numbers if the probability is 0.
bool draws_random_numbers(const Node& node);

}  // namespace tandem
