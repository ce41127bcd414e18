//! Names of images: `registry.example:5000/team/app:tag@sha256:…`.
//!
//! Upstream: `distribution/reference`. A name without a domain is one of `docker.io`.

/// Bytes of a name without its domain.
const MAX_PATH_BYTES: usize = 255;
/// Bytes of a tag.
const MAX_TAG_BYTES: usize = 128;

/// The `imagePullPolicy` of an image where none is given: `Always` for one that may move. A name that cannot be read is not
/// known to.
pub fn default_pull_policy(image: &str) -> &'static str {
    match parse(image) {
        Some(Reference { tag: "latest", .. }) => "Always",
        Some(Reference { tag: "", digest: "" }) => "Always",
        _ => "IfNotPresent",
    }
}

/// The parts of a name that say which of the images it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reference<'n> {
    tag: &'n str,
    digest: &'n str,
}

fn parse(image: &str) -> Option<Reference<'_>> {
    let is_identifier = image.len() == 64 && is_lower_hex(image);
    let (domain, rest) = split_domain(image);
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (rest, None),
    };
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match rest[last..].split_once(':') {
        Some((name, tag)) => (&rest[..last + name.len()], Some(tag)),
        None => (rest, None),
    };
    // A name of Docker's own has its folder before it.
    let implied = if domain.is_none() && !path.contains('/') {
        "library/".len()
    } else {
        0
    };
    let readable = !is_identifier
        && path.len() + implied <= MAX_PATH_BYTES
        && path.split('/').all(is_component)
        && domain.is_none_or(|own| is_domain(own) || is_component(own))
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    readable.then_some(Reference {
        tag: tag.unwrap_or_default(),
        digest: digest.unwrap_or_default(),
    })
}

/// The domain, where the first part of a name is one.
fn split_domain(image: &str) -> (Option<&str>, &str) {
    match image.split_once('/') {
        Some(("index.docker.io" | "docker.io", rest)) => (None, rest),
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first =>
        {
            (Some(first), rest)
        }
        _ => (None, image),
    }
}

/// A host with a port or without.
fn is_domain(text: &str) -> bool {
    let is_host = |host: &str| match host.strip_prefix('[').and_then(|own| own.strip_suffix(']')) {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|own| own == b':' || own.is_ascii_hexdigit())
        }
        None => host.split('.').all(is_label),
    };
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            !port.is_empty() && port.bytes().all(|own| own.is_ascii_digit()) && is_host(host)
        }
        _ => is_host(text),
    }
}

fn is_label(label: &str) -> bool {
    let inner = label
        .bytes()
        .all(|own| own.is_ascii_alphanumeric() || own == b'-');
    !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
}

/// Letters and digits, with a dot, one or two underscores, or dashes between them.
fn is_component(text: &str) -> bool {
    let is_word = |own: char| own.is_ascii_lowercase() || own.is_ascii_digit();
    let mut between = text.split(is_word).filter(|own| !own.is_empty());
    let ends = text.starts_with(is_word) && text.ends_with(is_word);
    ends && between.all(|own| matches!(own, "." | "_" | "__") || own.bytes().all(|own| own == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |own: char| own.is_ascii_alphanumeric() || own == '_';
    tag.len() <= MAX_TAG_BYTES
        && tag.starts_with(is_word)
        && tag.chars().all(|own| is_word(own) || matches!(own, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, sum)| {
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => return false,
        };
        sum.len() == length && is_lower_hex(sum)
    })
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|own| matches!(own, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::default_pull_policy;

    /// Answers of kube-apiserver for pods with these images.
    #[test]
    fn pull_policies_are_upstreams() {
        let lines = include_str!("../testdata/pull_policies.tsv").lines();
        let pairs = lines.filter_map(|line| line.split_once('\t'));
        let wrong: Vec<_> = pairs
            .filter(|(policy, image)| default_pull_policy(image) != *policy)
            .collect();
        assert_eq!(wrong, []);
    }
}
