//! Volumes of a Pod. Only image volumes count.

use std::collections::BTreeMap;

use pitstop_api::image_update::{MAX_CONTAINERS, MAX_IMAGE};
use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SlimVolume {
    name: String,
    image: Option<SlimImage>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimImage {
    reference: String,
}

/// The images by volume name: no more, and no longer ones, than a puller Pod has.
pub(super) fn images(volumes: Vec<SlimVolume>) -> BTreeMap<String, String> {
    let image = |volume: SlimVolume| Some((volume.name, volume.image?.reference));
    let all = volumes.into_iter().filter_map(image);
    all.filter(|(_, reference)| reference.len() <= MAX_IMAGE).take(MAX_CONTAINERS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn images_alone_are_kept_and_not_without_bounds() {
        let read = |volumes: Value| images(serde_json::from_value(volumes).unwrap());
        let image = |name: &str, reference: &str| json!({"name": name, "image": {"reference": reference}});
        let kept = read(json!([image("app", "r/web:v2"), {"name": "dir", "emptyDir": {}}, {"name": "none"}]));
        assert_eq!(kept, [("app".to_owned(), "r/web:v2".to_owned())].into());
        let many: Vec<Value> = (0..100).map(|n| image(&n.to_string(), "r/web:v2")).collect();
        assert_eq!(read(json!(many)).len(), MAX_CONTAINERS);
        assert!(read(json!([image("app", &"x".repeat(MAX_IMAGE + 1))])).is_empty());
    }
}
