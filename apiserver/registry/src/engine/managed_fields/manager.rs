//! The name of a manager.

use crate::shared::validation::Errors;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath};
use machinery_schema::leaf::{go_quote, is_printable};

/// Names of managers are not longer than this.
const MAX_MANAGER_BYTES: usize = 128;
/// The manager of a client that says nothing of itself.
const UNKNOWN: &str = "unknown";

/// The manager that the client names, or what its agent calls itself before the first slash, without what cannot be
/// printed and cut to the length a manager may have.
pub fn manager_of(named: &str, agent: &str) -> String {
    if !named.is_empty() {
        return named.to_owned();
    }
    let mut own = String::new();
    for character in agent.split('/').next().unwrap_or_default().chars() {
        if !is_printable(character) {
            continue;
        }
        if own.len() + character.len_utf8() > MAX_MANAGER_BYTES {
            break;
        }
        own.push(character);
    }
    if own.is_empty() { UNKNOWN.to_owned() } else { own }
}

/// Problems of a manager's name.
pub fn problems(manager: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut problems = Errors::new();
    if manager.len() > MAX_MANAGER_BYTES {
        problems.push(FieldError::too_long(path, MAX_MANAGER_BYTES));
    }
    for (at, character) in manager.char_indices().filter(|(_, own)| !is_printable(*own)) {
        let detail = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(character)
        );
        problems.note(|| FieldError::invalid(path, Shown(go_quote(manager)), detail));
    }
    problems.into_list()
}

#[cfg(test)]
mod tests {
    use super::{manager_of, problems};
    use machinery_meta::FieldPath;

    #[track_caller]
    fn check(named: &str, agent: &str, expected: &str) {
        assert_eq!(manager_of(named, agent), expected);
    }

    #[test]
    fn manager_is_named_or_the_agents_first_word() {
        check("named", "kubectl/v1.37", "named");
        check("", "kubectl/v1.37 (linux/amd64)", "kubectl");
        check("", "Go-http-client", "Go-http-client");
        check("", "my agent\u{200b}\t/1", "my agent");
        check("", "/1", "unknown");
        check("", "", "unknown");
        check("", &"ä".repeat(70), &"ä".repeat(64));
    }

    #[test]
    fn manager_that_cannot_be_printed_is_refused() {
        let path = FieldPath::new("fieldManager");
        let said: Vec<String> = problems("a\u{1}b\u{a0}\u{200b}ü x", &path)
            .iter()
            .map(ToString::to_string)
            .collect();
        let quoted = r#"fieldManager: Invalid value: "a\x01b\u00a0\u200bü x""#;
        let at = |what: &str| format!("{quoted}: invalid character {what}");
        assert_eq!(
            said,
            [
                at("U+0001 (at position 1)"),
                at("U+00A0 (at position 3)"),
                at("U+200B (at position 5)")
            ]
        );
    }
}
