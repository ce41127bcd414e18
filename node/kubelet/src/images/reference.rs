//! Image references as pods write them, by the grammar of distribution's `reference` package, by which upstream's kubelet and containerd
//! read them. Pure.

/// Bytes of a repository's path.
const PATH_BYTES_MAX: usize = 255;
const TAG_BYTES_MAX: usize = 128;
const DEFAULT_DOMAIN: &str = "docker.io";

/// A text that is no reference, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReferenceError {
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    #[error("invalid reference format")]
    Format,
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    #[error("invalid checksum digest format")]
    DigestFormat,
    #[error("invalid checksum digest length")]
    DigestLength,
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
}

/// Returns the reference with `latest` where it names neither tag nor digest.
pub(super) fn with_tag(image: &str) -> Result<String, ReferenceError> {
    if image.len() == 64 && is_hex(image) {
        return Err(ReferenceError::Identifier(image.to_owned()));
    }
    let (domain, rest) = split_domain(image);
    let rest = &match domain {
        DEFAULT_DOMAIN if !rest.contains('/') => format!("library/{rest}"),
        _ => rest.to_owned(),
    };
    let remote = rest.split(':').next().unwrap_or_default();
    if remote.to_lowercase() != remote {
        return Err(ReferenceError::Uppercase(remote.to_owned()));
    }
    let (named, digest) = match rest.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (rest.as_str(), None),
    };
    let path = without_tag(named);
    let tag = named[path.len()..].strip_prefix(':');
    if !path.split('/').all(is_component) || tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(ReferenceError::Format);
    }
    let path_bytes = match domain {
        domain if is_domain(domain) => path.len(),
        // No domain, but a component of the path.
        domain if is_component(domain) => domain.len() + 1 + path.len(),
        _ => return Err(ReferenceError::Format),
    };
    if digest.is_some_and(|digest| !has_digest_form(digest)) {
        return Err(ReferenceError::Format);
    }
    if path_bytes > PATH_BYTES_MAX {
        return Err(ReferenceError::TooLong);
    }
    digest.map_or(Ok(()), check_digest)?;
    Ok(match (tag, digest) {
        (None, None) => format!("{image}:latest"),
        _ => image.to_owned(),
    })
}

/// The registry's domain, and the rest; names of the default registry lack `library/` still.
pub(super) fn split_domain(image: &str) -> (&str, &str) {
    match image.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first =>
        {
            (first, rest)
        }
        _ => (DEFAULT_DOMAIN, image),
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

/// A host, or an IPv6 address in brackets, with or without a port.
fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        !(label.is_empty() || label.starts_with('-') || label.ends_with('-'))
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_address = |text: &str| {
        let mut bytes = text.bytes();
        !text.is_empty() && bytes.all(|byte| byte.is_ascii_hexdigit() || byte == b':')
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => is_address(address),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Small letters and digits, between them one of `.`, `_`, `__`, or any number of `-`.
fn is_component(part: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let mut separators = part.split(is_letter).filter(|between| !between.is_empty());
    part.starts_with(is_letter)
        && part.ends_with(is_letter)
        && separators
            .all(|between| matches!(between, "." | "_" | "__") || between.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG_BYTES_MAX
        && tag.bytes().next().is_some_and(is_word)
        && tag
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// An algorithm's name, and 32 hexadecimal digits at least.
fn has_digest_form(digest: &str) -> bool {
    let Some((algorithm, encoded)) = digest.split_once(':') else {
        return false;
    };
    let is_part = |part: &str| {
        part.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && encoded.len() >= 32
        && encoded.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_digest(digest: &str) -> Result<(), ReferenceError> {
    let (algorithm, encoded) = digest.split_once(':').unwrap_or_default();
    let digits = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        other if other.to_ascii_lowercase() != other => return Err(ReferenceError::DigestFormat),
        _ => return Err(ReferenceError::DigestAlgorithm),
    };
    match (encoded.len() == digits, is_hex(encoded)) {
        (false, _) => Err(ReferenceError::DigestLength),
        (true, false) => Err(ReferenceError::DigestFormat),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_get_a_tag() {
        let digest = format!("x@sha256:{}", "ab".repeat(32));
        let long = format!("host:5000/{}/x", "a".repeat(253));
        for (image, expected) in [
            ("busybox", "busybox:latest"),
            ("a.b/c/d:1", "a.b/c/d:1"),
            ("host:5000/x", "host:5000/x:latest"),
            ("[::1]:5000/x", "[::1]:5000/x:latest"),
            ("[fd00::1]/x", "[fd00::1]/x:latest"),
            ("localhost/x", "localhost/x:latest"),
            ("Host/x", "Host/x:latest"),
            ("a--b/c__d/e.f_g:_1", "a--b/c__d/e.f_g:_1"),
            ("a_b.c/x", "a_b.c/x:latest"),
            ("x:UPPER", "x:UPPER"),
            (&digest, &digest),
            (&long, &format!("{long}:latest")),
        ] {
            assert_eq!(with_tag(image).as_deref(), Ok(expected), "{image}");
        }
    }

    #[test]
    fn references_that_are_none_are_refused() {
        let digits = "ab".repeat(32);
        let uppercase = |name: &str| ReferenceError::Uppercase(name.to_owned());
        for (image, expected) in [
            (String::new(), ReferenceError::Format),
            ("a b".into(), ReferenceError::Format),
            ("pre:1\nfoo.bar/x:1".into(), ReferenceError::Format),
            ("foo.bar/x:1\n".into(), ReferenceError::Format),
            ("fo\no.bar/x:1".into(), ReferenceError::Format),
            (format!("x@sha256:{digits}\ny"), ReferenceError::Format),
            ("-a.b/x".into(), ReferenceError::Format),
            ("a.b:port/x".into(), ReferenceError::Format),
            ("a.b:/x".into(), ReferenceError::Format),
            ("[::1/x".into(), ReferenceError::Format),
            ("a///b".into(), ReferenceError::Format),
            ("a._b".into(), ReferenceError::Format),
            ("a___b".into(), ReferenceError::Format),
            ("_a".into(), ReferenceError::Format),
            ("a:".into(), ReferenceError::Format),
            ("a:.b".into(), ReferenceError::Format),
            (format!("a:{}", "b".repeat(129)), ReferenceError::Format),
            ("x@sha256:ab".into(), ReferenceError::Format),
            (format!("x@{digits}"), ReferenceError::Format),
            (format!("x@sha256:{digits}0"), ReferenceError::DigestLength),
            (
                format!("x@sha256:{}", digits.to_uppercase()),
                ReferenceError::DigestFormat,
            ),
            (format!("x@md5:{digits}"), ReferenceError::DigestAlgorithm),
            (format!("x:1@SHA256:{digits}"), ReferenceError::DigestFormat),
            (digits.clone(), ReferenceError::Identifier(digits)),
            ("Upper".into(), uppercase("library/Upper")),
            ("a.b/Upper:1".into(), uppercase("Upper")),
            (format!("host:5000/{}", "a".repeat(256)), ReferenceError::TooLong),
        ] {
            assert_eq!(with_tag(&image), Err(expected), "{image:?}");
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
