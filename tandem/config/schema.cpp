// A JSON schema of recipes, with which TOML editors complete and check them.

#include <nlohmann/json.hpp>

#include "tandem/config/fields.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

ordered_json number_of(const Field& field) {
  ordered_json json = {
      {"type", field.type == Field::Type::whole ? "integer" : "number"},
      {"minimum", field.least},
      {"maximum", field.most}};
  if (!field.unset) {
    return json;
  }
  return {{"anyOf", {json, {{"const", *field.unset}}}}};
}

ordered_json numbers_of(const Field& field) {
  const ordered_json number = {
      {"type", "number"}, {"minimum", field.least}, {"maximum", field.most}};
  return {
      {"anyOf",
       {number,
        {{"type", "array"}, {"items", number}},
        {{"enum", field.word_names()}}}}};
}

ordered_json values_of(const Field& field) {
  switch (field.type) {
    case Field::Type::boolean:
      return {{"type", "boolean"}};
    case Field::Type::text:
      return {{"type", "string"}};
    case Field::Type::numbers:
      return numbers_of(field);
    case Field::Type::choice:
      return field.pattern.empty()
                 ? ordered_json{{"enum", field.word_names()}}
                 : ordered_json{
                       {"anyOf",
                        {{{"enum", field.word_names()}},
                         {{"type", "string"}, {"pattern", field.pattern}}}}};
    default:
      break;
  }
  if (field.words.empty()) {
    return number_of(field);
  }
  return {{"anyOf", {number_of(field), {{"enum", field.word_names()}}}}};
}

ordered_json default_of(const Field& field) {
  const RunConfig defaults;
  const std::string text = field.text(defaults);
  const auto json =
      field.is_text() ? ordered_json(text) : ordered_json::parse(text, nullptr, false);
  return json.is_discarded() ? ordered_json(text) : json;
}

ordered_json property_of(const Field& field) {
  ordered_json json = values_of(field);
  json["description"] = field.help();
  json["default"] = default_of(field);
  return json;
}

}  // namespace

std::string recipe_schema() {
  ordered_json properties;
  properties["format_version"] = {{"const", 1}};
  properties["base"] = {
      {"type", "string"}, {"description", "recipe whose settings are read first"}};
  properties["description"] = {
      {"type", "string"}, {"description", "one line about the recipe"}};
  properties["without_gpu"] = {
      {"type", "string"}, {"description", "the recipe to use if there is no GPU"}};
  properties["tutorial"] = {
      {"type", {"string", "object"}},
      {"description", "number of the tutorial, or a table with its figures"}};
  properties["launch"] = {
      {"type", "object"},
      {"properties", {{"with", {{"enum", {"tandem", "mpirun"}}}}}},
      {"additionalProperties", false}};
  for (const auto& field : config_fields()) {
    properties[field.name] = property_of(field);
  }
  const ordered_json schema = {
      {"$schema", "http://json-schema.org/draft-07/schema#"},
      {"title", "A recipe of tandem"},
      {"type", "object"},
      {"properties", properties},
      {"additionalProperties", false}};
  return schema.dump(2) + "\n";
}

}  // namespace tandem
