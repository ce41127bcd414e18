//! Pieces of upstream's messages.

/// A noun or verb, by how many there are.
pub(crate) fn counted(count: usize, one: &'static str, several: &'static str) -> &'static str {
    match count {
        1 => one,
        _ => several,
    }
}

/// `"a", "b"`. Upstream does not escape what is quoted.
pub(crate) fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items = items.into_iter().map(|item| format!("\"{}\"", item.as_ref()));
    items.collect::<Vec<String>>().join(", ")
}

/// `container "a"`, or `containers "a", "b"`.
pub(crate) fn containers(names: &[&str]) -> String {
    format!(
        "{} {}",
        counted(names.len(), "container", "containers"),
        quoted(names)
    )
}

/// `pod and container "a"`: those of both that set something; empty where neither did.
pub(crate) fn setters(pod: bool, names: &[&str]) -> Vec<String> {
    let pod = pod.then(|| "pod".to_owned());
    let containers = (!names.is_empty()).then(|| containers(names));
    pod.into_iter().chain(containers).collect()
}
