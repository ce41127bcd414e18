//! Semantic versions, and the order of versions and quantities.

use super::{Function, fail, yes};
use crate::value::{Evaluated, Opaque, Value};
use std::cmp::Ordering;

/// A semantic version.
#[derive(Debug, Clone)]
pub struct Semver {
    /// Major, minor and patch.
    pub numbers: [u64; 3],
    pre_release: Vec<Identifier>,
    /// Bytes as it was written.
    written: usize,
}

/// A part of a pre-release version; numbers are before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Semver {
    pub(crate) fn bytes(&self) -> usize {
        self.written
    }

    /// Order of versions; a pre-release is before its release, and what it was built of does not count.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let released = |own: &Self| own.pre_release.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then(released(self).cmp(&released(other)))
            .then_with(|| self.pre_release.cmp(&other.pre_release))
    }
}

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "semver" => |_, args| match read(args)? {
            Ok(own) => Some(Ok(Value::opaque(Opaque::Semver(own)))),
            Err(problem) => fail(problem),
        },
        "isSemver" => |_, args| yes(read(args)?.is_ok()),
        "major" => |_, args| number(args, 0),
        "minor" => |_, args| number(args, 1),
        "patch" => |_, args| number(args, 2),
        "isGreaterThan" => |_, args| yes(order(args)?.is_gt()),
        "isLessThan" => |_, args| yes(order(args)?.is_lt()),
        "compareTo" => |_, args| Some(Ok(Value::Int(i64::from(order(args)? as i8)))),
        _ => return None,
    })
}

fn of<'v>(value: &'v Value<'_>) -> Option<&'v Semver> {
    match value {
        Value::Opaque(own) => match &**own {
            Opaque::Semver(own) => Some(own),
            _ => None,
        },
        _ => None,
    }
}

fn order(args: &[Value<'_>]) -> Option<Ordering> {
    let [own, other] = args else { return None };
    if let Some(own) = super::quantities::of(own) {
        return Some(own.quantity.cmp(&super::quantities::of(other)?.quantity));
    }
    Some(of(own)?.order(of(other)?))
}

fn number<'a>(args: &[Value<'a>], at: usize) -> Option<Evaluated<'a>> {
    let own = of(args.first()?)?.numbers[at];
    Some(Ok(Value::Int(own.cast_signed())))
}

fn read(args: &[Value<'_>]) -> Option<Result<Semver, String>> {
    match args {
        [Value::String(own)] | [Value::String(own), Value::Bool(false)] => Some(parse(own.as_str())),
        [Value::String(own), Value::Bool(true)] => Some(parse_tolerant(own.as_str())),
        _ => None,
    }
}

/// A version with a `v` before it, too few parts or zeros before them.
fn parse_tolerant(text: &str) -> Result<Semver, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|own| own.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    parse(&parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|own: char| own.is_ascii_digit()) {
        return rest.to_owned();
    }
    format!("0{rest}")
}

pub(crate) fn parse(text: &str) -> Result<Semver, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts[..] else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let major = whole(major, "Major number", "major number")?;
    let minor = whole(minor, "Minor number", "minor number")?;
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (rest, None),
    };
    let (patch, pre) = match rest.split_once('-') {
        Some((patch, pre)) => (patch, Some(pre)),
        None => (rest, None),
    };
    let patch = whole(patch, "Patch number", "patch number")?;
    let mut pre_release = Vec::new();
    for part in pre.into_iter().flat_map(|own| own.split('.')) {
        pre_release.push(identifier(part)?);
    }
    for part in build.into_iter().flat_map(|own| own.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !part.bytes().all(is_word) {
            let quoted = machinery_schema::leaf::go_quote(part);
            return Err(format!("Invalid character(s) found in build meta data {quoted}"));
        }
    }
    Ok(Semver {
        numbers: [major, minor, patch],
        pre_release,
        written: text.len(),
    })
}

fn is_word(own: u8) -> bool {
    own.is_ascii_alphanumeric() || own == b'-'
}

fn whole(text: &str, name: &str, lower: &str) -> Result<u64, String> {
    let quoted = || machinery_schema::leaf::go_quote(text);
    if !text.bytes().all(|own| own.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {lower} {}", quoted()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} must not contain leading zeroes {}", quoted()));
    }
    text.parse().map_err(|_| {
        let problem = if text.is_empty() {
            "invalid syntax"
        } else {
            "value out of range"
        };
        format!("strconv.ParseUint: parsing {}: {problem}", quoted())
    })
}

fn identifier(part: &str) -> Result<Identifier, String> {
    let quoted = || machinery_schema::leaf::go_quote(part);
    if part.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if part.bytes().all(|own| own.is_ascii_digit()) {
        if part.len() > 1 && part.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                quoted()
            ));
        }
        return part
            .parse()
            .map(Identifier::Number)
            .map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quoted()));
    }
    if part.bytes().all(is_word) {
        return Ok(Identifier::Word(part.to_owned()));
    }
    Err(format!("Invalid character(s) found in prerelease {}", quoted()))
}
