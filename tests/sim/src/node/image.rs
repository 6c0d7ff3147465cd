//! What a registry would say about image names.

use std::fmt::Write as _;

/// What the runtime calls an image that it pulled: `<repository>@sha256:<digest>`. Nothing when there is no such image:
/// the tag `missing`. An image of a repository that begins with `local/` was loaded and not pulled, and has no
/// repository digest.
pub fn image_ref(image: &str) -> Option<String> {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest.to_owned())),
        None => (image, None),
    };
    let (repository, tag) = match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (named, "latest"),
    };
    if tag == "missing" {
        return None;
    }
    let digest = digest.unwrap_or_else(|| digest_of(&format!("{repository}:{tag}")));
    Some(if repository.starts_with("local/") { digest } else { format!("{repository}@{digest}") })
}

/// A digest for a name, the same every time.
fn digest_of(name: &str) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    let mut text = "sha256:".to_owned();
    for round in 0..4_u8 {
        for byte in name.bytes().chain([round]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let _ = write!(text, "{state:016x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_in_the_name_rules() {
        let by_tag = image_ref("reg:5000/app:1").unwrap();
        let (repository, digest) = by_tag.split_once('@').unwrap();
        assert_eq!((repository, digest.len()), ("reg:5000/app", 71));
        assert_eq!(image_ref(&format!("reg:5000/app:2@{digest}")).unwrap(), by_tag);
        assert_eq!(image_ref(&format!("reg:5000/app@{digest}")).unwrap(), by_tag);
        assert_ne!(image_ref("reg:5000/app:2").unwrap(), by_tag);
        assert_eq!(image_ref("app"), image_ref("app:latest"));
        assert_eq!(image_ref("app:missing"), None);
        assert!(image_ref("local/app:1").unwrap().starts_with("sha256:"));
    }
}
