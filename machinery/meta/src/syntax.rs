//! The syntax of names, labels, ports and keys, each check answering with upstream's sentences
//! (apimachinery's `util/validation` and `api/validate/content`). An empty answer means valid.

/// The problems found, in upstream's order and words.
pub type Problems = Vec<String>;

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// `must be no more than N bytes`, as the rules of labels say it.
pub fn max_length(bytes: usize) -> String {
    format!("must be no more than {bytes} bytes")
}

/// `must be between A and B, inclusive`.
pub fn inclusive_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// A rule with its examples and the expression behind it, as upstream joins them.
pub fn regex_rule(rule: &str, expression: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{expression}')");
    }
    let listed: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{expression}')",
        listed.join(" or ")
    )
}

/// A DNS label: lower case, digits and `-`, at most 63 bytes.
pub fn dns1123_label(value: &str) -> Problems {
    let mut problems = too_long(value, LABEL_MAX);
    if !is_label(value, |c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
        if value
            .split('.')
            .all(|part| is_label(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit()))
        {
            problems.push("must not contain dots".into());
        } else {
            problems.push(regex_rule(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            ));
        }
    }
    problems
}

/// DNS labels joined by dots, at most 253 bytes.
pub fn dns1123_subdomain(value: &str) -> Problems {
    let mut problems = too_long(value, SUBDOMAIN_MAX);
    if !value
        .split('.')
        .all(|part| is_label(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit()))
    {
        problems.push(regex_rule(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            &format!("{DNS1123_LABEL}(\\.{DNS1123_LABEL})*"),
            &["example.com"],
        ));
    }
    problems
}

/// A subdomain in letters of either case.
pub fn caseless_subdomain(value: &str) -> Problems {
    let mut problems = too_long(value, SUBDOMAIN_MAX);
    if !dns1123_subdomain(&value.to_lowercase()).is_empty() {
        problems.push(regex_rule(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            &format!("{DNS1123_LABEL}(\\.{DNS1123_LABEL})*"),
            &["Example.com"],
        ));
    }
    problems
}

/// Checks the reason of a condition: one word of CamelCase, or several joined.
pub fn condition_reason(value: &str) -> Problems {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte);
    let bytes = value.as_bytes();
    let starts = bytes.first().is_some_and(u8::is_ascii_alphabetic);
    let ends = bytes
        .last()
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if starts && ends && bytes.iter().all(|byte| is_inner(*byte)) {
        return Problems::new();
    }
    vec![regex_rule(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &[
            "my_name",
            "MY_NAME",
            "MyName",
            "ReasonA,ReasonB",
            "ReasonA:ReasonB",
        ],
    )]
}

/// `*.` and a subdomain.
pub fn wildcard_dns1123_subdomain(value: &str) -> Problems {
    let mut problems = too_long(value, SUBDOMAIN_MAX);
    if !value
        .strip_prefix("*.")
        .is_some_and(|rest| dns1123_subdomain(rest).is_empty())
    {
        problems.push(regex_rule(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{DNS1123_LABEL}(\\.{DNS1123_LABEL})*"),
            &["*.example.com"],
        ));
    }
    problems
}

/// A DNS label that starts with a letter (service names).
pub fn dns1035_label(value: &str) -> Problems {
    let mut problems = too_long(value, LABEL_MAX);
    let first = value.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    if !first || !is_label(value, |c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
        problems.push(regex_rule(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// A label key (upstream's "qualified name"): an optional DNS prefix with `/`, then a name of at most 63 bytes.
pub fn qualified_name(value: &str) -> Problems {
    let mut problems = Problems::new();
    let rule = |part: &str| {
        format!(
            "{part} {}",
            regex_rule(LABEL_KEY_RULE, LABEL_KEY, &["MyName", "my.name", "123-abc"])
        )
    };
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".into());
            } else {
                problems.extend(
                    dns1123_subdomain(prefix)
                        .iter()
                        .map(|text| format!("prefix part {text}")),
                );
            }
            *name
        }
        _ => {
            let tail = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![rule("a valid label key") + tail];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > LABEL_MAX {
        problems.push(format!("name part {}", max_length(LABEL_MAX)));
    }
    if !is_label_name(name) {
        problems.push(rule("name part"));
    }
    problems
}

/// A label value: empty, or like a label key's name.
pub fn label_value(value: &str) -> Problems {
    let mut problems = Problems::new();
    if value.len() > LABEL_MAX {
        problems.push(max_length(LABEL_MAX));
    }
    if !value.is_empty() && !is_label_name(value) {
        problems.push(regex_rule(
            &format!(
                "a valid label must be an empty string or {}",
                &LABEL_KEY_RULE["must ".len()..]
            ),
            &format!("({LABEL_KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Problems {
    let mut problems = too_long(value, SUBDOMAIN_MAX);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if value.is_empty() || !value.chars().all(allowed) {
        problems.push(regex_rule(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    problems.extend(changes_directory(value));
    problems
}

/// An environment variable's name: any printable ASCII but `=` (upstream's relaxed rule, GA in 1.34).
pub fn env_var_name(value: &str) -> Problems {
    let mut problems = Problems::new();
    if value.is_empty() {
        problems.push("environment variable name must be non-empty".into());
    }
    if value.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        problems.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .into(),
        );
    }
    problems
}

/// A port between 1 and 65535.
pub fn port_number(port: i64) -> Problems {
    if (1..=65535).contains(&port) {
        Problems::new()
    } else {
        vec![inclusive_range(1, 65535)]
    }
}

/// A port's name (IANA_SVC_NAME): at most 15 of `-a-z0-9`, with a letter.
pub fn port_name(value: &str) -> Problems {
    let mut problems = too_long(value, 15);
    if value.is_empty()
        || !value
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !value.chars().any(|c| c.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".into());
    }
    if value.contains("--") {
        problems.push("must not contain consecutive hyphens".into());
    }
    if value.starts_with('-') || value.ends_with('-') {
        problems.push("must not begin or end with a hyphen".into());
    }
    problems
}

/// `12%`.
pub fn percent(value: &str) -> Problems {
    let digits = value.strip_suffix('%');
    if digits.is_some_and(|d| !d.is_empty() && d.chars().all(|c| c.is_ascii_digit())) {
        return Problems::new();
    }
    vec![regex_rule(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// A name of an HTTP header.
pub fn http_header_name(value: &str) -> Problems {
    if !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Problems::new();
    }
    vec![regex_rule(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// A user or group id that may be requested.
pub fn user_id(id: i64) -> Problems {
    let max = i64::from(i32::MAX);
    if (0..=max).contains(&id) {
        Problems::new()
    } else {
        vec![inclusive_range(0, max)]
    }
}

/// A name that becomes a segment of a path: not `.`, `..`, and without `/` or `%` (RBAC names and the like).
pub fn path_segment_name(value: &str) -> Problems {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    let found = ["/", "%"].iter().filter(|bad| value.contains(**bad));
    found.map(|bad| format!("may not contain '{bad}'")).collect()
}

fn too_long(value: &str, max: usize) -> Problems {
    if value.len() > max {
        vec![format!("must be no more than {max} characters")]
    } else {
        Problems::new()
    }
}

fn is_label(value: &str, alphanumeric: impl Fn(char) -> bool) -> bool {
    let ends = |c: Option<char>| c.is_some_and(&alphanumeric);
    ends(value.chars().next())
        && ends(value.chars().next_back())
        && value.chars().all(|c| alphanumeric(c) || c == '-')
}

fn is_label_name(value: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(value.chars().next())
        && ends(value.chars().next_back())
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn changes_directory(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        _ if value.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: fn(&str) -> Problems, valid: &[&str], invalid: &[&str]) {
        for value in valid {
            assert_eq!(rule(value), Problems::new(), "{value}");
        }
        for value in invalid {
            assert!(!rule(value).is_empty(), "{value} should be refused");
        }
    }

    #[test]
    fn accepts_and_refuses() {
        let long = "a".repeat(64);
        check(
            dns1123_label,
            &["a", "a-b", "1", "123-abc"],
            &["", "-a", "a-", "A", "a.b", "a_b", &long],
        );
        check(
            dns1123_subdomain,
            &["a", "a.b", "1.2"],
            &["", ".", "a.", ".a", "a..b", "A.b"],
        );
        check(dns1035_label, &["a", "a1"], &["1a", "", "a."]);
        check(
            qualified_name,
            &["a", "A.b_c", "x.y/Z"],
            &["", "/a", "a/", "a/b/c", "X/a", "-a"],
        );
        check(label_value, &["", "a", "A_b.c"], &["a b", "-", &long]);
        check(
            config_map_key,
            &["a", ".a", "A_b"],
            &["", ".", "..", "..a", "a/b"],
        );
        check(
            port_name,
            &["http", "h2-c"],
            &["", "1", "a--b", "-a", "sixteen-letters-", "H"],
        );
        check(percent, &["1%", "100%"], &["%", "1", "-1%"]);
        check(
            path_segment_name,
            &["a:b", "system:x"],
            &[".", "..", "a/b", "a%b"],
        );
        check(env_var_name, &["A", "a-b", "1a"], &["", "a=b", "é"]);
    }

    #[test]
    fn syntax_messages_match_upstream() {
        assert_eq!(
            qualified_name("a b"),
            [
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    }
}
