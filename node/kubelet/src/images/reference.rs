//! Image references as pods write them. Pure.

/// The reference with `latest` where it names neither tag nor digest; `None` if it is not a reference.
pub(super) fn with_tag(image: &str) -> Option<String> {
    let (path, digest) = image
        .split_once('@')
        .map_or((image, None), |(path, digest)| (path, Some(digest)));
    let (host, last) = path
        .rsplit_once('/')
        .map_or(("", path), |(host, last)| (host, last));
    let (name, tag) = last
        .split_once(':')
        .map_or((last, None), |(name, tag)| (name, Some(tag)));
    let word = |text: &str, extra: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || extra.contains(letter))
    };
    let parts_fit = host
        .split('/')
        .skip(usize::from(host.is_empty() || host.contains(['.', ':'])))
        .all(|part| word(part, "._-") && part == part.to_lowercase());
    let fits = word(name, "._-")
        && name == name.to_lowercase()
        && tag.is_none_or(|tag| word(tag, "._-") && tag.len() <= 128)
        && (host.is_empty() || parts_fit);
    match (fits, tag, digest) {
        (false, _, _) => None,
        (true, None, None) => Some(format!("{image}:latest")),
        (true, _, _) => Some(image.to_string()),
    }
}

/// The reference without tag and digest.
pub(super) fn without_tag(image: &str) -> &str {
    let path = image.split_once('@').map_or(image, |(path, _)| path);
    match path.rsplit_once(':') {
        // A colon before a slash is that of a port.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_get_a_tag_or_are_refused() {
        for (image, expected) in [
            ("busybox", Some("busybox:latest")),
            ("a.b/c/d:1", Some("a.b/c/d:1")),
            ("host:5000/x", Some("host:5000/x:latest")),
            ("x@sha256:ab", Some("x@sha256:ab")),
            ("Upper", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(with_tag(image).as_deref(), expected, "{image}");
        }
    }

    #[test]
    fn references_lose_tag_and_digest() {
        for (image, expected) in [
            ("busybox", "busybox"),
            ("a.b/c/d:1", "a.b/c/d"),
            ("host:5000/x", "host:5000/x"),
            ("host:5000/x:1@sha256:ab", "host:5000/x"),
        ] {
            assert_eq!(without_tag(image), expected, "{image}");
        }
    }
}
