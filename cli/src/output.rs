//! Objects on standard output, as kubectl's `-o` prints them.

use std::io::{self, Write as _};

use clap::ValueEnum;
use kube::core::DynamicObject;
use pitstop_cli_core::plain;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

/// The object in that form, without `metadata.managedFields`, as kubectl leaves them out.
pub fn rendered(mut object: Value, format: Format) -> Result<String, Failure> {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    let text = match format {
        Format::Json => serde_json::to_string_pretty(&object)
            .map_err(|error| Failure::local("cannot write the object as JSON", &error))?,
        Format::Yaml => serde_saphyr::to_string(&object)
            .map_err(|error| Failure::local("cannot write the object as YAML", &error))?,
    };
    Ok(plain::structured(text.trim_end()))
}

/// The object in the form for output.
pub fn as_dynamic(object: &impl Serialize) -> Result<DynamicObject, Failure> {
    let value = serde_json::to_value(object).and_then(serde_json::from_value);
    value.map_err(|error| Failure::local("cannot write the object", &error))
}

/// Prints lines on standard output. Ignores a closed pipe, as programs in a pipe do.
pub fn print(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_printed_without_managed_fields_and_without_control_characters() {
        let object = json!({"kind": "Pod", "metadata": {"name": "web", "managedFields": [{"manager": "x"}],
            "annotations": {"note": "a\u{9b}31mb\u{1b}c\u{202e}d\nsecond"}}});
        for format in [Format::Json, Format::Yaml] {
            let text = rendered(object.clone(), format).unwrap();
            assert!(!text.contains("managedFields"), "{text}");
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
            assert!(!text.contains('\u{202e}'), "{text:?}");
            let read: Value = match format {
                Format::Json => serde_json::from_str(&text).unwrap(),
                Format::Yaml => serde_saphyr::from_str(&text).unwrap(),
            };
            assert_eq!(read["kind"], "Pod");
            assert_eq!(read["metadata"]["annotations"], object["metadata"]["annotations"], "{text}");
        }
    }
}
