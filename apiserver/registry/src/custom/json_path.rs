//! The part of JSONPath that printer columns use: members, indexes, and filters on one member's value.

use machinery_schema::Ref;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(i64),
    /// `[*]`: the first that leads somewhere.
    Any,
    /// `[?(@.type=="Ready")]`.
    Where {
        path: Vec<Step>,
        equal: bool,
        value: String,
    },
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Parses `.spec.x`, `.status.conditions[?(@.type=="Ready")].status`, `.metadata.annotations.a\.b/c`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text
            .trim()
            .trim_start_matches('{')
            .trim_end_matches('}')
            .trim_start_matches('$');
        parse_steps(text).map(Self)
    }

    /// The first value the path leads to.
    pub(crate) fn find<'a>(&self, object: Ref<'a>) -> Option<Ref<'a>> {
        follow(object, &self.0)
    }

    /// Member names, for paths that have nothing else.
    pub(crate) fn members(&self) -> Option<Vec<String>> {
        let name = |step: &Step| match step {
            Step::Member(name) => Some(name.clone()),
            _ => None,
        };
        self.0.iter().map(name).collect()
    }
}

fn parse_steps(mut rest: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while let Some(first) = rest.chars().next() {
        match first {
            '.' => {
                let (name, after) = member(&rest[1..]);
                if name.is_empty() && !after.starts_with('[') {
                    return None;
                }
                if !name.is_empty() {
                    steps.push(Step::Member(name));
                }
                rest = after;
            }
            '[' => {
                let end = closing(rest)?;
                steps.push(bracket(&rest[1..end])?);
                rest = &rest[end + 1..];
            }
            _ => return None,
        }
    }
    Some(steps)
}

/// A member's name, up to the next step; a backslash takes the next character as it is.
fn member(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                if let Some((_, escaped)) = characters.next() {
                    name.push(escaped);
                }
            }
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// Position of the bracket that closes the first one, quotes and inner brackets skipped.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    let inner = inner.trim();
    if inner == "*" {
        return Some(Step::Any);
    }
    if let Some(name) = unquoted(inner) {
        return Some(Step::Member(name.to_owned()));
    }
    if let Ok(index) = inner.parse() {
        return Some(Step::Index(index));
    }
    let condition = inner.strip_prefix("?(")?.strip_suffix(')')?.trim();
    let (left, right, equal) = match condition.split_once("==") {
        Some((left, right)) => (left, right, true),
        None => {
            let (left, right) = condition.split_once("!=")?;
            (left, right, false)
        }
    };
    let path = parse_steps(left.trim().strip_prefix('@')?)?;
    let right = right.trim();
    let value = unquoted(right).unwrap_or(right).to_owned();
    Some(Step::Where { path, equal, value })
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn follow<'a>(at: Ref<'a>, steps: &[Step]) -> Option<Ref<'a>> {
    #[cfg(test)]
    tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
    let Some((step, rest)) = steps.split_first() else {
        return Some(at);
    };
    match step {
        Step::Member(name) => follow(at.get(name)?, rest),
        Step::Index(index) => {
            let length = i64::try_from(at.len()).ok()?;
            let index = if *index < 0 { length + index } else { *index };
            follow(at.item(usize::try_from(index).ok()?)?, rest)
        }
        Step::Any => at.items().find_map(|item| follow(item, rest)),
        Step::Where { path, equal, value } => at
            .items()
            .filter(|item| {
                let found = follow(*item, path);
                let same = found.is_some_and(|found| {
                    found.as_str().map_or_else(|| found.to_json(), str::to_owned) == *value
                });
                same == *equal
            })
            .find_map(|item| follow(item, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::JsonPath;
    use machinery_schema::Tree;
    use std::cell::Cell;

    thread_local! {
        /// Places that were looked at.
        pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    #[track_caller]
    fn check(path: &str, expected: Option<&str>) {
        let object = Tree::from_json(
            r#"{"spec":{"n":3,"l":["a","b"]},"status":{"conditions":[{"type":"A","status":"x"},{"type":"Ready","status":"True"}]},"m":{"a.b/c":"q"}}"#,
        )
        .unwrap();
        let found =
            JsonPath::parse(path).and_then(|path| path.find(object.root()).map(|found| found.to_json()));
        assert_eq!(found.as_deref(), expected, "{path}");
    }

    #[test]
    fn json_path_fuzz_never_panics() {
        let object = Tree::from_json(r#"{"a":{"b":[{"c":"x"},[1,[2,[3]]]]}}"#).unwrap();
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let objects = [object, Tree::from_json(&deep).unwrap(), wide()];
        let good = [".a.b[?(@.c==\"x\")].c", "{.a['b'][-1][1][*]}", r"$.a\.b[*][*][0]"];
        machinery_fuzz::fuzz_built(good, built, |input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            let path = machinery_fuzz::in_proportion(input, 64, || JsonPath::parse(text));
            let Some(path) = path else { return };
            machinery_fuzz::in_proportion(input, 64, || path.members());
            for object in &objects {
                LOOKED_AT.set(0);
                let _ = path.find(object.root());
                // Every filter looks at what is below its place, and every place is reached once.
                let most = (path.0.len() + 1) * (object.node_count() + 1);
                assert!(
                    LOOKED_AT.get() <= most,
                    "{} places, {most} are allowed",
                    LOOKED_AT.get()
                );
            }
        });
    }

    /// Lists of lists, four times sixteen.
    fn wide() -> Tree {
        let level = |below: &str| format!("[{}]", vec![below; 16].join(","));
        let text = level(&level(&level("1")));
        Tree::from_json(&format!("{{\"a\":{text}}}")).unwrap()
    }

    /// Paths of many steps of every kind, and filters within filters.
    fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
        let mut path = random.pick(&["", "$", "{$", "$.a", ".a"]).to_owned();
        for _ in 0..random.count() {
            let step = match random.below(7) {
                0 => format!(".{}", random.name()),
                1 => format!("['{}']", random.name()),
                2 => format!("[{}]", random.count()),
                3 => "[-1]".to_owned(),
                4 => format!("[?(@{}==\"x\")]", "[*]".repeat(random.below(40))),
                5 => format!("[?({}!=1)]", "@[?(".repeat(random.count())),
                _ => "[*]".to_owned(),
            };
            path.push_str(&step);
            if path.len() > 1 << 16 {
                break;
            }
        }
        path.into_bytes()
    }

    #[test]
    fn paths() {
        check(".spec.n", Some("3"));
        check("{.spec.l[1]}", Some("\"b\""));
        check(".spec.l[-1]", Some("\"b\""));
        check(
            ".status.conditions[?(@.type==\"Ready\")].status",
            Some("\"True\""),
        );
        check(".status.conditions[?(@.type=='A')].status", Some("\"x\""));
        check(r".m.a\.b/c", Some("\"q\""));
        check(".m['a.b/c']", Some("\"q\""));
        check(".spec.l[*]", Some("\"a\""));
        check(".spec.none", None);
        check("spec", None);
    }
}
