#pragma once

/// The public API. Its headers are listed in the recommended reading order. They do not
/// include torch/torch.h. Parts that need more of LibTorch, or MPI, have separate
/// headers:
///   tandem/parallel/ddp/data_parallel_module.h   tandem::DataParallel
///   tandem/parallel/ddp/sharded_optimizer.h      tandem::ShardedOptimizer
///   tandem/parallel/ddp/sync_batch_norm_module.h tandem::SyncBatchNorm
///   tandem/data/distributed_sampler.h            tandem::DistributedSampler
///   tandem/optim/torch_optim.h                   tandem::Lion, tandem::Adadelta, ...
///   tandem/comm/join/join_mpi.h                  tandem::join_run(MPI_Comm)

// Ranks and their communication.
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/join/join.h"
#include "tandem/comm/join/spawn.h"
#include "tandem/comm/rpc/rpc.h"

// Data, models, optimizers.
#include "tandem/core/arena.h"
#include "tandem/core/module_state.h"
#include "tandem/data/dataset.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/loader.h"
#include "tandem/data/sampler.h"
#include "tandem/graph/pt2_writer.h"
#include "tandem/model/model.h"
#include "tandem/model/module_model.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/optim/lr_schedule.h"
#include "tandem/optim/optimizer.h"

// Executors, which compute on one rank, and strategies, which keep ranks consistent.
#include "tandem/exec/api/checkpoint.h"
#include "tandem/exec/api/compile.h"
#include "tandem/exec/autocast.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tandem/parallel/ddp/local_sgd.h"
#include "tandem/parallel/strategy.h"

// Complete training runs.
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/loop_checkpoint.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/config/run_config.h"
#include "tandem/train/assembly.h"
#include "tandem/train/checkpoint_model.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/predictions.h"
#include "tandem/train/predictor.h"
#include "tandem/train/trainer.h"
