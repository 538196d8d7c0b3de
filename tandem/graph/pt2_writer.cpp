#include "tandem/graph/pt2_writer.h"

#include <map>
#include <vector>

#include "tandem/formats/torch_zip.h"
#include "tandem/graph/pt2_program.h"

namespace tandem {

namespace {

// Tensors of the state dict, or constants: a file for each tensor, and their
// descriptions.
class Payload {
 public:
  // `folder` is "weights" or "constants"; `file` is the start of the files' names.
  Payload(const std::string& folder, const std::string& file)
      : folder_("data/" + folder + "/"),
        config_file_(folder_ + "model_" + folder + "_config.json"),
        file_(file) {}

  // Adds a name of a value. Several names of a value share a file.
  void add(const std::string& name, ValueId id, const Value& value) {
    const auto [found, added] =
        files_.emplace(id, file_ + std::to_string(files_.size()));
    if (added) {
      tensors_.push_back(value.tensor.detach().cpu().contiguous());
    }
    config_[name] = {
        {"path_name", found->second},
        {"is_param", value.kind == ValueKind::parameter},
        {"use_pickle", false},
        {"tensor_meta",
         pt2_tensor(
             value.dtype, value.shape, value.tensor.requires_grad(), "'" + name + "'")},
    };
  }

  // Adds the files. They refer to the memory of this object.
  void add_to(std::vector<ZipRecord>& records) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      records.push_back(
          {folder_ + file_ + std::to_string(i), tensors_[i].data_ptr(),
           tensors_[i].nbytes()});
    }
    config_text_ = Pt2Json{{"config", config_}}.dump();
    records.push_back({config_file_, config_text_.data(), config_text_.size()});
  }

 private:
  std::string folder_;
  std::string config_file_;
  std::string file_;
  std::map<ValueId, std::string> files_;
  std::vector<at::Tensor> tensors_;
  Pt2Json config_ = Pt2Json::object();
  std::string config_text_;
};

}  // namespace

void write_pt2(const std::string& path, const Graph& graph) {
  const std::string program = program_of(graph).dump();
  Payload weights("weights", "weight_");
  Payload constants("constants", "tensor_");
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.tensor.defined()) {
      auto& payload = value.kind == ValueKind::constant ? constants : weights;
      payload.add(attribute_name(value), static_cast<ValueId>(i), value);
    }
  }
  for (const auto& alias : graph.aliases) {
    weights.add(alias.state_name, alias.value, graph.value(alias.value));
  }
  std::vector<ZipRecord> records;
  weights.add_to(records);
  constants.add_to(records);
  const std::string format = "pt2";
  const std::string version = "0";
  const std::string byte_order = "little";
  records.push_back({"models/model.json", program.data(), program.size()});
  records.push_back({"data/sample_inputs/model.pt"});
  records.push_back({"archive_format", format.data(), format.size()});
  records.push_back({"archive_version", version.data(), version.size()});
  records.push_back({"byteorder", byte_order.data(), byte_order.size()});
  write_torch_zip(path, records);
}

}  // namespace tandem
