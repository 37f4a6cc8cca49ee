#pragma once
#include <span>
#include <vector>

#include "ssn/shared_weights.h"

namespace ssn {

/// How long fit_weights() tries.
struct FitOptions {
  int first_steps = 40;   // for the groups' parameters, with the coefficients that they start with
  int rounds = 8;         // of fitting coefficients and parameters in turns, at most
  int steps = 10;         // of each in a round
  double enough = 0.002;  // a round that makes the error smaller by less than this share of it is the last
};

/// Gives the groups, and the coefficients and masks where there are any, values from which every layer's
/// weight comes as near as possible to `targets` (one a layer of the plan, f32 of its shape, on the CPU): the
/// least sum over the layers of |w − target|² / |target|². Returns each layer's |w − target| / |target| (of a
/// target that is zero: |w|).
///
/// A weight is linear in its group's parameters, and affine in masks, alpha and phi, so each of these is
/// found, with the others as they are, by conjugate gradients on the normal equations (Paige and Saunders,
/// 1982, section 7), whose products are the generation of the weights, forward and backward. Groups do not
/// depend on each other, nor do layers with given parameters: each has its own step length, and a group of
/// one unshared layer is exact after the first step. Not fitted: the projection of embeddings (phi alone
/// reaches every alpha while E >= K) and coefficients under a softmax. The same on any number of threads.
std::vector<double> fit_weights(SharedWeights& weights, Parameters& parameters,
                                std::span<const Tensor> targets, const FitOptions& options = {});

}  // namespace ssn
