//! Variables from files in the pod's emptyDir volumes (`fileKeyRef`), which other containers of the pod have written.
//!
//! Each file is read once per container, before its environment is made, and of its variables only those that the
//! container refers to are kept. The syntax is upstream's (pkg/kubelet/util/env): `NAME='value'`, comments, empty lines.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, FileKeySelector, Pod};
use node_sys::blocking::BlockingLane;
use node_volume::VolumeSet;

use super::StartError;
use crate::pods::spec;

/// Bytes read for one container, of all its files together.
const FILES_BYTES_MAX: u64 = 4 << 20;
/// The longest line with its end (Go's `bufio.MaxScanTokenSize`).
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Files that a container's environment refers to, by volume and path.
#[derive(Debug, Default)]
pub(crate) struct EnvFiles(HashMap<(String, String), EnvFile>);

/// A file that was read, or could not be.
#[derive(Debug)]
struct EnvFile {
    path: PathBuf,
    /// Variables the container refers to; of two with one name the first.
    values: HashMap<String, Vec<u8>>,
    /// The reason why nothing after these was read.
    failure: Option<String>,
}

/// A file still to be read.
struct Wanted {
    place: (String, String),
    root: PathBuf,
    keys: HashSet<String>,
}

impl EnvFiles {
    /// Reads the files of a container; a volume that is no emptyDir has none.
    pub(super) async fn read(
        pod: &Pod,
        container: &Container,
        volumes: &VolumeSet,
        lane: &BlockingLane,
    ) -> Result<Self, StartError> {
        let wanted = wanted(pod, container, volumes);
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let work = move || {
            let mut bytes_left = FILES_BYTES_MAX;
            let files = wanted.into_iter().map(|wanted| {
                let file = EnvFile::read(&wanted, &mut bytes_left);
                (wanted.place, file)
            });
            Self(files.collect())
        };
        lane.run("reading environment files", work)
            .await
            .map_err(StartError::config)
    }

    /// The variable's value; `None` if it is optional and its file has no such key. Words are upstream's.
    pub(super) fn value(&self, selector: &FileKeySelector) -> Result<Option<&[u8]>, StartError> {
        let place = (selector.volume_name.clone(), selector.path.clone());
        let Some(file) = self.0.get(&place) else {
            return Err(StartError::config(format!(
                "cannot find the volume {:?} referenced by FileKeyRef",
                selector.volume_name
            )));
        };
        match (file.values.get(&selector.key), &file.failure) {
            (Some(value), _) if !value.is_empty() => Ok(Some(value)),
            (None, Some(why)) => {
                tracing::warn!(path = %file.path.display(), %why, "failed to parse env file");
                Err(StartError::config("couldn't parse env file"))
            }
            // An empty value counts as a missing key, as upstream's.
            _ if selector.optional == Some(true) => Ok(None),
            _ => Err(StartError::config(format!(
                "environment variable key {:?} not found in file {:?}",
                selector.key,
                file.path.display().to_string()
            ))),
        }
    }
}

fn wanted(pod: &Pod, container: &Container, volumes: &VolumeSet) -> Vec<Wanted> {
    let mut all: HashMap<(String, String), Wanted> = HashMap::new();
    let sources = container.env.iter().flatten();
    for selector in sources.filter_map(|variable| variable.value_from.as_ref()?.file_key_ref.as_ref()) {
        let mut declared = spec(pod).volumes.iter().flatten();
        let Some(volume) = declared.find(|own| own.name == selector.volume_name && own.empty_dir.is_some())
        else {
            continue;
        };
        let place = (selector.volume_name.clone(), selector.path.clone());
        let wanted = all.entry(place.clone()).or_insert_with(|| Wanted {
            place,
            root: volumes.host_path(volume),
            keys: HashSet::new(),
        });
        wanted.keys.insert(selector.key.clone());
    }
    all.into_values().collect()
}

impl EnvFile {
    /// Blocks.
    fn read(wanted: &Wanted, bytes_left: &mut u64) -> Self {
        let inside = wanted.place.1.trim_start_matches('/');
        let mut values = HashMap::new();
        let opened = node_sys::fs::open_file_below(&wanted.root, Path::new(inside));
        let parsed = opened.map_err(|error| error.to_string()).and_then(|file| {
            let mut lines = Lines::new(file, *bytes_left);
            let parsed = parse(&mut lines, &wanted.keys, &mut values);
            *bytes_left = lines.input.get_ref().limit();
            parsed
        });
        Self {
            path: wanted.root.join(inside),
            values,
            failure: parsed.err(),
        }
    }
}

/// Lines of a file without their ends, as Go's `bufio.ScanLines` has them.
struct Lines<R> {
    input: BufReader<std::io::Take<R>>,
    number: usize,
}

impl<R: Read> Lines<R> {
    fn new(input: R, bytes_max: u64) -> Self {
        Self {
            input: BufReader::new(input.take(bytes_max)),
            number: 0,
        }
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut line = Vec::new();
        let read = self
            .input
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        read.map_err(|error| error.to_string())?;
        if self.input.get_ref().limit() == 0 && self.input.buffer().is_empty() {
            return Err(format!(
                "the container's files are larger than {FILES_BYTES_MAX} bytes"
            ));
        }
        if line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() as u64 == LINE_BYTES_MAX {
            return Err(format!("line {} is too long", self.number));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }
}

/// Reads variables until the end or the first line that is none, and keeps those requested.
fn parse<R: Read>(
    lines: &mut Lines<R>,
    keys: &HashSet<String>,
    values: &mut HashMap<String, Vec<u8>>,
) -> Result<(), String> {
    while let Some(line) = lines.next()? {
        let line = blanks_trimmed(&line);
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let invalid =
            |why: &str, at: usize| Err(format!("invalid environment variable format at line {at}: {why}"));
        let Some(at) = line.iter().position(|byte| *byte == b'=') else {
            return invalid("missing '='", lines.number);
        };
        let (name, value) = (&line[..at], &line[at + 1..]);
        if name.iter().all(|byte| is_blank(*byte)) {
            return invalid("empty variable name", lines.number);
        }
        if name.last().copied().is_some_and(is_blank) {
            return invalid("whitespace before '=' is not allowed", lines.number);
        }
        let value = match value.first() {
            // A shell takes what follows for another word.
            Some(byte) if is_blank(*byte) => Vec::new(),
            Some(b'\'') => quoted(lines, &value[1..])?,
            _ => return invalid("value must be enclosed in single quotes", lines.number),
        };
        if let Some(key) = std::str::from_utf8(name).ok().and_then(|name| keys.get(name)) {
            values.entry(key.clone()).or_insert(value);
        }
    }
    Ok(())
}

/// The text up to the closing quote, on this line or a later one.
fn quoted<R: Read>(lines: &mut Lines<R>, first: &[u8]) -> Result<Vec<u8>, String> {
    let began = lines.number;
    let mut value = Vec::new();
    let mut rest = first.to_vec();
    loop {
        if let Some(end) = rest.iter().position(|byte| *byte == b'\'') {
            value.extend_from_slice(&rest[..end]);
            let after = blanks_trimmed(&rest[end + 1..]);
            if after.is_empty() || after[0] == b'#' {
                return Ok(value);
            }
            return Err(format!(
                "invalid environment variable format at line {}: unexpected content after closing quote",
                lines.number
            ));
        }
        value.append(&mut rest);
        value.push(b'\n');
        rest = lines.next()?.ok_or_else(|| {
            format!("invalid environment variable format starting at line {began}: unclosed single quote")
        })?;
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn blanks_trimmed(text: &[u8]) -> &[u8] {
    let begin = text.iter().position(|byte| !is_blank(*byte));
    &text[begin.unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of `K` in a file, or the reason why there is none.
    fn value(content: &[u8]) -> Result<Option<String>, String> {
        value_of("K", content)
    }

    fn value_of(key: &str, content: &[u8]) -> Result<Option<String>, String> {
        let mut values = HashMap::new();
        let mut lines = Lines::new(content, FILES_BYTES_MAX);
        let parsed = parse(&mut lines, &HashSet::from([key.to_owned()]), &mut values);
        match values.remove(key) {
            Some(value) => Ok(Some(String::from_utf8(value).unwrap())),
            None => parsed.map(|()| None),
        }
    }

    #[track_caller]
    fn check(content: &str, expected: Result<Option<&str>, &str>) {
        let found = value(content.as_bytes());
        let words = "invalid environment variable format ";
        let found = found.as_ref().map(Option::as_deref);
        let found = found.map_err(|error| error.strip_prefix(words).unwrap_or(error));
        assert_eq!(found, expected, "{content:?}");
    }

    #[test]
    fn env_file_is_read_as_upstream_reads_it() {
        check("K='v'", Ok(Some("v")));
        check("A='1'\n\n \t\n# note\n  K='a b' # why\nB=x", Ok(Some("a b")));
        check("K='one\ntwo\n'\nA='1'", Ok(Some("one\ntwo\n")));
        check("K='first'\nK='second'", Ok(Some("first")));
        check("K='$HOME \\n \"'\r\n", Ok(Some("$HOME \\n \"")));
        check("K=''", Ok(Some("")));
        check("K= 'v'", Ok(Some("")));
        check("K=\t", Ok(Some("")));
        check("A= x\nK='v'", Ok(Some("v")));
        check("", Ok(None));
        check("k='v'\nKK='v'", Ok(None));
    }

    #[test]
    fn env_file_that_is_no_environment_is_refused_from_its_first_fault_on() {
        check("K", Err("at line 1: missing '='"));
        check("\n='v'", Err("at line 2: empty variable name"));
        check(" \t='v'", Err("at line 1: empty variable name"));
        check("K ='v'", Err("at line 1: whitespace before '=' is not allowed"));
        check(
            "A=v\nK='v'",
            Err("at line 1: value must be enclosed in single quotes"),
        );
        check("K=", Err("at line 1: value must be enclosed in single quotes"));
        check(
            "K=\"v\"",
            Err("at line 1: value must be enclosed in single quotes"),
        );
        check("\nK='v\nw", Err("starting at line 2: unclosed single quote"));
        check("K='v'w", Err("at line 1: unexpected content after closing quote"));
        check("K='v'\nbad", Ok(Some("v")));
    }

    /// A row of upstream's `TestParseEnv`; of its rows one is left out, whose value looks like a private key.
    #[derive(serde::Deserialize)]
    struct Row {
        name: String,
        key: String,
        file: String,
        #[serde(default)]
        value: String,
        /// A part of the reason, where the file is refused.
        error: Option<String>,
    }

    #[test]
    fn env_file_is_read_as_upstreams_table_has_it() {
        let rows: Vec<Row> = serde_json::from_str(include_str!("../../testdata/env_files.json")).unwrap();
        assert_eq!(rows.len(), 47);
        for row in rows {
            match (value_of(&row.key, row.file.as_bytes()), row.error) {
                (Ok(found), None) => assert_eq!(found.unwrap_or_default(), row.value, "{}", row.name),
                (Err(why), Some(part)) => assert!(why.contains(&part), "{}: {why}", row.name),
                (found, _) => panic!("{}: {found:?}", row.name),
            }
        }
    }

    fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
        let mut text = String::new();
        for _ in 0..random.count() {
            let name = random.pick(&["K", "A", " K", "K ", ""]);
            let equals = random.pick(&["=", "=", "= ", ""]);
            let value = random.pick(&["'v'", "'", "'a\nb'", "'v' # c", "v", "''w"]);
            let end = random.pick(&["\n", "\r\n", "\n\n", ""]);
            text.push_str(&[name, equals, value, end].concat());
        }
        text.into_bytes()
    }

    #[test]
    fn env_file_fuzz_never_panics() {
        let good = "# comment\nA='1'\nK='one\ntwo' # why\n";
        machinery_fuzz::fuzz_built([good], built, |input| {
            let keys = HashSet::from(["K".to_owned()]);
            let values = machinery_fuzz::in_proportion(input, 4, || {
                let mut values = HashMap::new();
                let _ = parse(&mut Lines::new(input, FILES_BYTES_MAX), &keys, &mut values);
                values
            });
            assert!(values.values().all(|value| value.len() <= input.len()));
        });
    }

    #[test]
    fn env_file_has_bounds() {
        let line = |bytes: usize| format!("K='{}'\n", "x".repeat(bytes - 5));
        assert!(value(line(64 << 10).as_bytes()).is_ok());
        let long = value(line((64 << 10) + 1).as_bytes());
        assert_eq!(long, Err("line 1 is too long".to_owned()));
        let many = "# comment\n".repeat(500_000) + "K='v'";
        let error = value(many.as_bytes()).unwrap_err();
        assert_eq!(error, "the container's files are larger than 4194304 bytes");
    }
}
