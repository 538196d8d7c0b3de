#include "tandem/exec/compiled/program/image_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <utility>

namespace tandem {

using dnnl::memory;

at::Tensor flat_tensor(const memory& image) {
  return at::from_blob(
      image.get_data_handle(), {elements_of(image)}, [image](void*) {}, at::kFloat);
}

void ImageValues::set(RecordedId id, const memory& image) {
  images_[id] = {image, false};
  ++users_[image.get_data_handle()];
}

void ImageValues::release(RecordedId id) {
  const auto found = images_.find(id);
  if (found == images_.end()) {
    return;
  }
  const memory image = found->second.memory;
  images_.erase(found);
  if (--users_[image.get_data_handle()] == 0 && context_.pool != nullptr) {
    context_.pool->release(image);
  }
}

memory ImageValues::image(
    RecordedId id, size_t layer, std::vector<Instruction>& program) {
  if (const auto found = images_.find(id); found != images_.end()) {
    return found->second.memory;
  }
  const auto& sizes = recording_.tensors[static_cast<size_t>(id)].sizes;
  const memory image = make(plain_desc(sizes));
  program.push_back(
      {"copy of a tensor",
       [to = tensor_over(image), id](ProgramState& state) {
         to.copy_(state.tensors[static_cast<size_t>(id)]);
       },
       {id},
       {},
       layer});
  set(id, image);
  images_[id].is_tensor = true;
  return image;
}

memory ImageValues::image_in(
    const memory::desc& layout, RecordedId id, size_t layer,
    std::vector<Instruction>& program) {
  const memory from = image(id, layer, program);
  LayoutChange change;
  const memory to = change.plan(from, layout, context_);
  if (from.get_desc() != layout) {
    program.push_back(
        {"change of layout",
         [change, stream = context_.stream](ProgramState&) { change.run(stream); },
         {},
         {},
         layer});
  }
  return to;
}

void ImageValues::provide_tensor(
    RecordedId id, size_t layer, std::vector<Instruction>& program) {
  const auto found = images_.find(id);
  if (found == images_.end() || std::exchange(found->second.is_tensor, true)) {
    return;
  }
  const memory& image = found->second.memory;
  const auto& sizes = recording_.tensors[static_cast<size_t>(id)].sizes;
  const memory plain(plain_desc(sizes), context_.engine, image.get_data_handle());
  const dnnl::reorder reorder(image, plain);
  program.push_back(
      {"tensor of an image",
       [=, context = context_](ProgramState& state) {
         auto tensor = at::empty(sizes, at::kFloat);
         const memory to(plain_desc(sizes), context.engine, tensor.data_ptr<float>());
         BoundPrimitive(reorder, {{DNNL_ARG_FROM, image}, {DNNL_ARG_TO, to}})
             .run(context.stream);
         state.tensors[static_cast<size_t>(id)] = std::move(tensor);
       },
       {},
       {id},
       layer});
}

}  // namespace tandem
