//! Schema rules that are easier to write as a loop than as an attribute.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, ValidationRule};

/// Adds a rule.
pub(crate) fn rule(schema: &mut JSONSchemaProps, field: &str, rule: String, message: String) {
    schema.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
        rule,
        message: Some(message),
        field_path: (!field.is_empty()).then(|| format!(".{field}")),
        ..ValidationRule::default()
    });
}

/// Adds a rule for each of the fields: it is never changed, added or removed. `path` is where they are; `why` follows
/// it in the message. (`self.?f == oldSelf.?f` says the same, but the API server estimates its cost beyond its budget.)
pub(crate) fn immutable(schema: &mut JSONSchemaProps, path: &str, fields: &[&str], why: &str) {
    for field in fields {
        let same = format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
        );
        rule(schema, field, same, format!("{path}.{field}{why}"));
    }
}
