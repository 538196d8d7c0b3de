// Remote procedure calls: all other ranks send requests to rank 0, which squares
// tensors and counts the requests.
//
//   tandem launch --nproc-per-node 3 ./rpc

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <tandem/tandem.h>

#include <cstdio>
#include <string>

namespace {

constexpr int kServer = 0;
constexpr int kRequestsPerRank = 2;

void serve(tandem::Rpc& rpc, int num_requests) {
  for (int i = 1; i <= num_requests; ++i) {
    tandem::RpcRequest request = rpc.next();
    if (request.message.header != "square") {
      throw tandem::ConfigError(
          "[rpc] service is '" + request.message.header +
          "', expected 'square'; change the request");
    }
    const at::Tensor x = request.message.tensors.at(0);
    request.reply({"answer " + std::to_string(i), {x * x}});
  }
  std::printf("served %d requests\n", num_requests);
}

void ask(tandem::Rpc& rpc, int rank) {
  for (int i = 0; i < kRequestsPerRank; ++i) {
    const at::Tensor x = at::arange(3, at::kFloat) + 10 * rank + i;
    const tandem::RpcMessage answer = rpc.call(kServer, {"square", {x}});
    const at::Tensor& squares = answer.tensors.at(0);
    std::printf(
        "the squares of %.0f, %.0f, %.0f are %.0f, %.0f, %.0f\n", x[0].item<float>(),
        x[1].item<float>(), x[2].item<float>(), squares[0].item<float>(),
        squares[1].item<float>(), squares[2].item<float>());
  }
}

}  // namespace

int main() {
  const auto run = tandem::join_run();
  const auto rpc = tandem::make_rpc(*run.comm);
  if (run.comm->rank() == kServer) {
    serve(*rpc, kRequestsPerRank * (run.comm->size() - 1));
  } else {
    ask(*rpc, run.comm->rank());
  }
  // The answers must arrive before the server's Rpc is destroyed.
  run.comm->barrier();
  return 0;
}
