// dropped_results.cmake compiles this file, and expects a warning for each line marked
// "dropped" and for no other line.

#include "tandem/tandem.h"

namespace tandem {

void drop_works(Communicator& comm, const at::Tensor& x, const at::Tensor& all) {
  comm.all_reduce(x);           // dropped
  comm.broadcast(x, 0);         // dropped
  comm.reduce_scatter(x, all);  // dropped
  comm.all_gather(all, x);      // dropped
  comm.scatter(x, all, 0);      // dropped
  comm.gather(all, x, 0);       // dropped
  comm.send(x, 1, 0);           // dropped
  comm.recv(x, 1, 0);           // dropped
  comm.all_reduce(x)->wait();
  comm.barrier();
}

void drop_results(Communicator& comm, const at::Tensor& x) {
  comm.stack(x);                // dropped
  comm.broadcast_text("", 0);   // dropped
  make_thread_group(2);         // dropped
  join_run();                   // dropped
  load_dataset("digits");       // dropped
  shard_indices({}, 0);         // dropped
  make_model({}, {});           // dropped
  make_function_model({}, {});  // dropped
  read_weights("");             // dropped
  evaluate_checkpoint("");      // dropped
}

void drop_guards(DistributedDataParallel& ddp, Loader& loader, Batch& batch) {
  ddp.no_sync();        // dropped
  TokenFile({}, true);  // dropped
  loader.next(batch);   // dropped
}

}  // namespace tandem
