//! Names of objects, as kubectl writes them.

use kube::core::ObjectMeta;

use crate::plain;

/// `KIND.GROUP/NAME`, as kubectl names changed objects. A name that the API server has yet to generate ends with a
/// dash.
pub fn qualified_name(kind: &str, group: &str, meta: &ObjectMeta) -> String {
    let kind = kind.to_ascii_lowercase();
    let name = meta.name.as_deref().filter(|name| !name.is_empty());
    let name = plain::line(name.or(meta.generate_name.as_deref()).unwrap_or_default(), 253);
    if group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{group}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_with_their_group() {
        let meta = ObjectMeta { name: Some("web".into()), ..ObjectMeta::default() };
        assert_eq!(qualified_name("Deployment", "apps", &meta), "deployment.apps/web");
        assert_eq!(qualified_name("Namespace", "", &meta), "namespace/web");
        let made = ObjectMeta { generate_name: Some("web-0-".into()), ..ObjectMeta::default() };
        assert_eq!(qualified_name("PodResize", "pitstop.dev", &made), "podresize.pitstop.dev/web-0-");
    }
}
