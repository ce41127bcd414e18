//! Words that users see: log messages, texts of errors, help of flags and metrics. The dialect that `docs/glossary.md`
//! replaces is not to come back there, and neither help nor a doc of an item begins with a clause for a subject. Docs of
//! items name their actors.

use super::circles::plain;
use std::collections::BTreeMap;

/// Words of the dialect, in lower case. A name in braces is a field of the message and not read.
const DIALECT: [&str; 31] = [
    "anew",
    "ask",
    "asked",
    "asking",
    "asks",
    "hear",
    "heard",
    "hearing",
    "hears",
    "lacking",
    "lacks",
    "looked",
    "looking",
    "looks",
    "nobody",
    "promise",
    "promised",
    "promises",
    "promising",
    "said",
    "saying",
    "says",
    "somebody",
    "stranger",
    "strangers",
    "tell",
    "telling",
    "tells",
    "told",
    "vouches",
    "whoever",
];

/// Words of the dialect that comments do not have either.
const SPOKEN: [&str; 4] = ["tell", "telling", "tells", "told"];

/// Words of the dialect in names, which the glossary replaces.
const SPOKEN_NAMES: [&str; 9] = [
    "heard",
    "hears",
    "stranger",
    "strangers",
    "tell",
    "teller",
    "telling",
    "tells",
    "told",
];

/// Words without an actor, which docs of items do not have.
const NAMELESS: [&str; 10] = [
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "nobody",
    "somebody",
    "someone",
    "whoever",
    "whomever",
    "whosoever",
];

/// Words behind which "who" has no noun that it refers to.
const HEADLESS: [&str; 14] = [
    "", "and", "as", "at", "by", "for", "from", "of", "on", "or", "than", "those", "to", "with",
];

/// First words of a clause, where a help has a noun or a verb.
const CLAUSES: [&str; 12] = [
    "How", "What", "Whatever", "When", "Where", "Whether", "Which", "Who", "Whoever", "Whom", "Whose", "Why",
];

/// Words of a clause for a subject in any sentence of a doc; behind the first, "When" and "Where" may begin another.
const SUBJECTS: [&str; 8] = [
    "How", "What", "Whatever", "Whether", "Who", "Whom", "Whose", "Why",
];

/// Macros and attributes whose string literals are read by users.
const CALLS: [&str; 11] = [
    ".context(",
    ".with_context(",
    "ReconcileError::doing(",
    "anyhow!(",
    "bail!(",
    "tracing::debug!(",
    "tracing::error!(",
    "tracing::info!(",
    "tracing::trace!(",
    "tracing::warn!(",
    "#[error(",
];

/// Docs of items that begin with a clause, in all crates, tests and examples.
pub(super) fn docs(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let mut inside = false;
        for (number, line) in text.lines().enumerate() {
            let doc = line.trim_start();
            let doc = doc.strip_prefix("/// ").or_else(|| doc.strip_prefix("//! "));
            let begins = !std::mem::replace(&mut inside, line.trim_start().starts_with("//"));
            if let Some(first) = doc.filter(|_| begins).and_then(clause) {
                problems.push(format!(
                    "{path}:{}: the doc begins with {first:?} (docs/style.md, Words)",
                    number + 1
                ));
            }
        }
    }
    problems
}

/// Docs of items that name no actor: a word of [`NAMELESS`], a "who" without its noun, or a sentence whose subject is a clause.
pub(super) fn actors(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let mut before = String::new();
        for (number, line) in text.lines().enumerate() {
            let doc = line.trim_start();
            let Some(doc) = doc.strip_prefix("///").or_else(|| doc.strip_prefix("//!")) else {
                before.clear();
                continue;
            };
            for word in doc_words(doc) {
                if is_nameless(word, &before) {
                    let number = number + 1;
                    problems.push(format!(
                        "{path}:{number}: the doc names no actor: {word:?} (docs/style.md, Words)"
                    ));
                }
                before = word.to_lowercase();
            }
        }
    }
    problems
}

/// Words of a line and, as an empty one, each end of a sentence; code stands for a noun.
fn doc_words(doc: &str) -> impl Iterator<Item = &str> {
    let parts = doc.split('`').enumerate();
    parts.flat_map(|(at, part)| match at % 2 {
        0 => split_words(part),
        _ => vec!["`"],
    })
}

fn split_words(text: &str) -> Vec<&str> {
    let is_end = |mark: char| matches!(mark, '.' | ':' | ';');
    let sentences = text.split_inclusive(is_end);
    let words = sentences.flat_map(|sentence| {
        let words = sentence.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let end = sentence.ends_with(is_end).then_some("");
        words.filter(|word| !word.is_empty()).chain(end)
    });
    words.collect()
}

fn is_nameless(word: &str, before: &str) -> bool {
    let lower = word.to_lowercase();
    NAMELESS.contains(&lower.as_str())
        || (lower == "who" && HEADLESS.contains(&before))
        || (before.is_empty() && SUBJECTS.contains(&word))
}

/// Comments with a word of [`SPOKEN`]; code in them is not read.
pub(super) fn comments(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    let lists_them = |path: &str| path.ends_with("tidy/words.rs");
    for (path, text) in texts
        .iter()
        .filter(|(path, _)| path.ends_with(".rs") && !lists_them(path))
    {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = comment(line).and_then(spoken) {
                let number = number + 1;
                problems.push(format!(
                    "{path}:{number}: a comment has {word:?} (docs/style.md, Words)"
                ));
            }
        }
    }
    problems
}

/// Lines of code with a name that has a word of [`SPOKEN_NAMES`].
pub(super) fn names(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| is_product(path)) {
        for (number, line) in plain(text).lines().enumerate() {
            if let Some(name) = name_with(line, &SPOKEN_NAMES) {
                found.push(format!(
                    "{path}:{}: the name {name:?} has a word of the dialect (docs/glossary.md)",
                    number + 1
                ));
            }
        }
    }
    found
}

/// The first name outside of literals that has one of these words.
pub(super) fn name_with<'a>(code: &'a str, listed: &[&str]) -> Option<&'a str> {
    let outside = code.split('"').step_by(2);
    let mut names =
        outside.flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
    names.find(|name| {
        let (constant, camel) = (name.to_lowercase(), snake(name));
        let mut words = constant.split('_').chain(camel.split('_'));
        words.any(|word| listed.contains(&word))
    })
}

/// A name in Rust's case of types, in that of variables.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// The comment at the end of a line, if it has one.
pub(super) fn comment(line: &str) -> Option<&str> {
    let (at, _) = line.match_indices("//").next()?;
    let is_code = line[..at].matches('"').count().is_multiple_of(2);
    is_code.then(|| &line[at..])
}

fn spoken(comment: &str) -> Option<String> {
    let text = comment
        .split('`')
        .step_by(2)
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase();
    let mut words = text.split(|letter: char| !letter.is_ascii_alphabetic() && letter != '_');
    words.find(|word| SPOKEN.contains(word)).map(str::to_owned)
}

/// The first word, if it begins a clause.
fn clause(text: &str) -> Option<&str> {
    let first = text.split([' ', '.', ',', ':', ';']).next();
    first.filter(|first| CLAUSES.contains(first))
}

/// Texts for users that have a word of the dialect or begin with a clause.
pub(super) fn words(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| is_product(path)) {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for shown in messages(text).chain(metric_help(text)).chain(flag_help(text)) {
            if let Some(word) = fault(&shown) {
                problems.push(format!(
                    "{path}: users read {word:?} in {shown:?} (docs/glossary.md)"
                ));
            }
        }
    }
    problems
}

/// Reports whether a file is code that runs at users: not of tests, tools and generators.
pub(super) fn is_product(path: &str) -> bool {
    let tools = ["xtask/", "conformance/", "machinery/fuzz/"];
    path.contains("/src/")
        && path.ends_with(".rs")
        && !path.ends_with("tests.rs")
        && !path.contains("/tests/")
        && !tools.iter().any(|folder| path.starts_with(folder))
}

/// Literals of log events and of error attributes.
fn messages(text: &str) -> impl Iterator<Item = String> {
    let calls = CALLS.iter().flat_map(|call| text.split(call).skip(1));
    calls.flat_map(literals)
}

/// String literals up to the parenthesis that closes the one before `text`.
fn literals(text: &str) -> Vec<String> {
    let (mut depth, mut found) = (1_usize, Vec::new());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match next {
            '"' => found.push(literal(&mut rest)),
            '(' => depth += 1,
            ')' if depth == 1 => break,
            ')' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// The rest of a string literal, without escapes.
fn literal(rest: &mut std::str::Chars<'_>) -> String {
    let mut text = String::new();
    while let Some(next) = rest.next().filter(|next| *next != '"') {
        match next {
            '\\' => drop(rest.next()),
            next => text.push(next),
        }
    }
    text
}

/// Help texts of the Prometheus format, without the metric's name.
fn metric_help(text: &str) -> impl Iterator<Item = String> {
    let lines = text.split("# HELP ").skip(1);
    let lines = lines.filter_map(|rest| Some(rest.split_once(' ')?.1));
    let fields = text.split("help: \"").skip(1);
    lines.chain(fields).map(|rest| {
        let end = rest.find(['\\', '"', '\n']).unwrap_or(rest.len());
        rest[..end].to_owned()
    })
}

/// Doc comments of arguments of the command line.
fn flag_help(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let ends =
        (0..lines.len()).filter(|at| lines[*at].starts_with("#[arg") || lines[*at].starts_with("#[command"));
    let helps = ends.map(|end| {
        let docs = lines[..end]
            .iter()
            .rev()
            .map_while(|line| line.strip_prefix("///"));
        let docs: Vec<&str> = docs.collect();
        docs.iter()
            .rev()
            .map(|line| line.trim())
            .collect::<Vec<_>>()
            .join(" ")
    });
    helps.collect::<Vec<_>>().into_iter()
}

/// The first word that is not for users.
fn fault(text: &str) -> Option<String> {
    if let Some(clause) = clause(text) {
        return Some(clause.to_owned());
    }
    let plain = without_fields(text).to_lowercase();
    let mut words = plain.split(|letter: char| !letter.is_ascii_alphabetic());
    words.find(|word| DIALECT.contains(word)).map(str::to_owned)
}

/// The text without names of fields in braces.
fn without_fields(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| {
        whole + part.split_once('}').map_or("", |(_, after)| after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let texts = BTreeMap::from([(path.to_owned(), text.to_owned())]);
        let found = words(&texts);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (problem, word) in found.iter().zip(expected) {
            assert!(problem.contains(&format!("users read {word:?}")), "{problem}");
        }
    }

    #[test]
    fn names_of_the_dialect_are_found() {
        let check = |path: &str, code: &str, expected: &[&str]| {
            let found = names(&BTreeMap::from([(path.to_owned(), code.to_owned())]));
            assert_eq!(found.len(), expected.len(), "{code}: {found:?}");
            for (problem, name) in found.iter().zip(expected) {
                assert!(problem.contains(&format!("{name:?}")), "{problem}");
            }
        };
        let file = "a/src/b.rs";
        for (code, expected) in [
            ("let told = 1;", Some("told")),
            ("    fn is_told_apart() {}", Some("is_told_apart")),
            ("const MAX_HEARD_BYTES: usize = 1;", Some("MAX_HEARD_BYTES")),
            ("struct IdleStranger;", Some("IdleStranger")),
            ("#[cfg(test)]\nmod tests;\nlet told = 1;", Some("told")),
            ("// told `told`", None),
            ("print(\"told {told}\");", None),
            ("let stolen = foretold;", None),
        ] {
            check(file, code, &expected.into_iter().collect::<Vec<_>>());
        }
        check("a/tests/b.rs", "let told = 1;", &[]);
        check(file, "#[cfg(test)]\nmod tests {\n    let told = 1;\n}", &[]);
    }

    #[test]
    fn words_of_the_dialect_are_found_where_users_read() {
        let file = "cmd/knarr/src/x.rs";
        check(
            file,
            "tracing::warn!(%told, f(\")\"), \"the client is told\");",
            &["told"],
        );
        check(file, "#[error(\"nobody answers {asked}\")]", &["nobody"]);
        check(
            file,
            ".with_context(|| format!(\"asking {server}\"))?;",
            &["asking"],
        );
        check(file, "bail!(\"{file} was made anew\");", &["anew"]);
        check(file, "/// How long it takes\n    #[arg(long)]\n", &["How"]);
        check(file, "\"# HELP x_total What was made anew.\\n\"", &["What"]);
        check(file, "    help: \"Requests that clients asked for\",", &["asked"]);
    }

    #[test]
    fn comments_of_the_dialect_are_found() {
        let text = "let told = 1; // The client is told.\n/// Calls `tell`.\nlet url = \"http://told\";\n/// Told so.\n";
        let found = comments(&BTreeMap::from([(
            "node/sys/src/x.rs".to_owned(),
            text.to_owned(),
        )]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("node/sys/src/x.rs:1: "), "{found:?}");
        assert!(found[1].starts_with("node/sys/src/x.rs:4: "), "{found:?}");
    }

    #[test]
    fn docs_that_begin_with_a_clause_are_found() {
        let text = "//! How it works.\n\nstruct A;\n    /// Lines\n    /// What follows.\n/// Who waits.\n/// Why.\nfn f() {}\n/// Whether.\n";
        let texts = |path: &str| BTreeMap::from([(path.to_owned(), text.to_owned())]);
        for path in ["node/sys/src/x.rs", "apiserver/auth/tests/x.rs"] {
            let found = docs(&texts(path));
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(found[0].starts_with(&format!("{path}:1: ")), "{found:?}");
            assert!(found[1].starts_with(&format!("{path}:9: ")), "{found:?}");
        }
        assert_eq!(docs(&texts("docs/x.md")), [""; 0]);
    }

    #[test]
    fn docs_without_an_actor_are_found() {
        let text = [
            "//! Rights of whoever asks.",
            "fn a() {} // nobody",
            "/// A lock for",
            "/// who waits: a user who",
            "/// comes, `nobody`.",
            "/// The share of Nobody. Who leaves, and who stays.",
            "let text = \"somebody\";",
            "/// Who comes.",
            "",
            "/// A lock. What holds it",
            "/// What.",
        ];
        let found = actors(&BTreeMap::from([(
            "node/sys/src/x.rs".to_owned(),
            text.join("\n"),
        )]));
        let places: Vec<_> = found
            .iter()
            .map(|problem| problem.split(": ").next().unwrap())
            .collect();
        let expected = [1, 4, 6, 6, 6, 8, 10].map(|line| format!("node/sys/src/x.rs:{line}"));
        assert_eq!(places, expected, "{found:?}");
    }

    #[test]
    fn words_of_fields_names_and_tests_are_free() {
        let file = "cmd/knarr/src/x.rs";
        check(
            file,
            "#[error(\"revision {asked} has been compacted\")]\n/// What is told.\nstruct X;",
            &[],
        );
        check(
            file,
            "tracing::info!(told, \"ready\");\nlet text = \"nobody\";",
            &[],
        );
        check(file, "#[cfg(test)]\nmod tests { tracing::info!(\"told\"); }", &[]);
        check("cmd/knarr/src/x/tests.rs", "tracing::info!(\"told\");", &[]);
        check("xtask/src/x.rs", "tracing::info!(\"told\");", &[]);
    }
}
