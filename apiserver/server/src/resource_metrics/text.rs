//! Reading of `/metrics/resource`, piece by piece as it arrives (metrics-server's `scraper/client/resource/decode.go`).
//!
//! A kubelet writes the text, so it is bounded: lines by [`MAX_LINE_BYTES`], containers of a pod by
//! [`MAX_CONTAINERS`], and pods by those that run on the node, for which alone its word counts.

use jiff::Timestamp;
use machinery_meta::ObjectKey;
use std::collections::HashMap;

/// Bytes of the longest line that is read.
const MAX_LINE_BYTES: usize = 8 * 1_024;
/// Containers that one pod may have.
const MAX_CONTAINERS: usize = 512;
/// The longest name of a container.
const MAX_CONTAINER_NAME: usize = 63;
const NANOS: f64 = 1e9;

/// One sample of a node or a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    /// Start of the container, from where its cpu time counts.
    pub(super) started: Timestamp,
    pub(super) at: Timestamp,
    /// Cpu time since the start.
    pub(super) cpu_nanoseconds: u64,
    pub(super) memory_bytes: u64,
}

/// Samples of one node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeSamples {
    pub(super) node: Option<Point>,
    pub(super) pods: HashMap<ObjectKey, HashMap<Box<str>, Point>>,
}

/// The text cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TextError {
    #[error("a line is longer than {MAX_LINE_BYTES} bytes")]
    LongLine,
    #[error("a line is no sample: {0:?}")]
    NoSample(String),
}

/// Reads a text whose end has not come.
pub(super) struct Reader<R> {
    runs_here: R,
    /// Time of samples that have none.
    now: Timestamp,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    node: Partial,
    pods: HashMap<ObjectKey, HashMap<Box<str>, Partial>>,
}

/// A sample of which lines may be missing.
#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    started: Option<Timestamp>,
    at: Option<Timestamp>,
    cpu_nanoseconds: u64,
    memory_bytes: u64,
}

impl Partial {
    /// The point, if it has cpu time and memory.
    fn complete(self) -> Option<Point> {
        let used = self.cpu_nanoseconds > 0 && self.memory_bytes > 0;
        let at = self.at.filter(|_| used)?;
        Some(Point {
            started: self.started.unwrap_or(Timestamp::UNIX_EPOCH),
            at,
            cpu_nanoseconds: self.cpu_nanoseconds,
            memory_bytes: self.memory_bytes,
        })
    }
}

impl<R: Fn(&ObjectKey) -> bool> Reader<R> {
    /// Takes samples of those pods alone that `runs_here` names.
    pub(super) fn new(now: Timestamp, runs_here: R) -> Self {
        Self {
            runs_here,
            now,
            rest: Vec::new(),
            node: Partial::default(),
            pods: HashMap::new(),
        }
    }

    /// Reads the next piece.
    ///
    /// # Errors
    /// The part that cannot be read; nothing of the node counts then.
    pub(super) fn take(&mut self, mut piece: &[u8]) -> Result<(), TextError> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&piece[..end], &piece[end + 1..]);
            if self.rest.is_empty() {
                self.line(line)?;
            } else {
                self.keep(line)?;
                let line = std::mem::take(&mut self.rest);
                self.line(&line)?;
            }
            piece = after;
        }
        self.keep(piece)
    }

    fn keep(&mut self, piece: &[u8]) -> Result<(), TextError> {
        if self.rest.len() + piece.len() > MAX_LINE_BYTES {
            return Err(TextError::LongLine);
        }
        self.rest.extend_from_slice(piece);
        Ok(())
    }

    /// The samples. Of a pod all containers count, or none.
    pub(super) fn end(mut self) -> Result<NodeSamples, TextError> {
        let rest = std::mem::take(&mut self.rest);
        self.line(&rest)?;
        let pods = self.pods.into_iter().filter_map(|(key, containers)| {
            let points = containers.into_iter();
            let points = points.map(|(name, partial)| Some((name, partial.complete()?)));
            Some((key, points.collect::<Option<HashMap<_, _>>>()?))
        });
        Ok(NodeSamples {
            node: self.node.complete(),
            pods: pods.collect(),
        })
    }

    fn line(&mut self, line: &[u8]) -> Result<(), TextError> {
        if line.len() > MAX_LINE_BYTES {
            return Err(TextError::LongLine);
        }
        let no_sample = || {
            let shown = &line[..line.len().min(100)];
            TextError::NoSample(String::from_utf8_lossy(shown).into_owned())
        };
        let text = std::str::from_utf8(line).map_err(|_| no_sample())?.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        let sample = Sample::read(text).ok_or_else(no_sample)?;
        self.sample(&sample);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let at = sample.at.unwrap_or(self.now);
        let (of_node, name) = match sample.name.split_once('_') {
            Some(("node", name)) => (true, name),
            Some(("container", name)) => (false, name),
            _ => return,
        };
        let partial = if of_node {
            Some(&mut self.node)
        } else {
            self.container(sample.labels)
        };
        let Some(partial) = partial else { return };
        match name {
            "cpu_usage_seconds_total" => {
                partial.cpu_nanoseconds = whole(sample.value * NANOS);
                partial.at = Some(at);
            }
            "memory_working_set_bytes" => {
                partial.memory_bytes = whole(sample.value);
                partial.at = Some(partial.at.unwrap_or(at));
            }
            "start_time_seconds" => {
                let nanos = i128::from(whole(sample.value * NANOS));
                partial.started = Timestamp::from_nanosecond(nanos).ok();
            }
            _ => {}
        }
    }

    /// The container that labels name, where its pod runs here.
    fn container(&mut self, labels: &str) -> Option<&mut Partial> {
        let [mut container, mut pod, mut namespace] = [""; 3];
        for (name, value) in labels_of(labels) {
            match name {
                "container" => container = value,
                "pod" => pod = value,
                "namespace" => namespace = value,
                _ => {}
            }
        }
        let key = ObjectKey::new(namespace, pod);
        if container.is_empty() || container.len() > MAX_CONTAINER_NAME || !(self.runs_here)(&key) {
            return None;
        }
        let containers = self.pods.entry(key).or_default();
        let has_room = containers.len() < MAX_CONTAINERS || containers.contains_key(container);
        has_room.then(|| containers.entry(container.into()).or_default())
    }
}

/// A line of the text.
struct Sample<'a> {
    name: &'a str,
    /// Between the braces.
    labels: &'a str,
    value: f64,
    at: Option<Timestamp>,
}

impl<'a> Sample<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (name, labels, rest) = match text.split_once('{') {
            Some((name, rest)) => {
                let (labels, rest) = rest.rsplit_once('}')?;
                (name, labels, rest)
            }
            None => {
                let (name, rest) = text.split_once(' ')?;
                (name, "", rest)
            }
        };
        let mut fields = rest.split_ascii_whitespace();
        let value = fields.next()?.parse().ok()?;
        let at = match fields.next() {
            Some(millis) => Some(Timestamp::from_millisecond(millis.parse().ok()?).ok()?),
            None => None,
        };
        Some(Self {
            name: name.trim_end(),
            labels,
            value,
            at,
        })
    }
}

/// Labels with their values, which are names: none of them has a quote or a comma.
fn labels_of(labels: &str) -> impl Iterator<Item = (&str, &str)> {
    labels.split(',').filter_map(|label| {
        let (name, value) = label.split_once('=')?;
        Some((name.trim(), value.strip_prefix('"')?.strip_suffix('"')?))
    })
}

/// A whole number; what is none, or negative, is zero.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and what is no number becomes zero"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="a",pod="p"} 4.710169 1633253812125
container_cpu_usage_seconds_total{container="main",namespace="a",pod="elsewhere"} 1 1633253812125
container_cpu_usage_seconds_total{container="main",namespace="a",pod="idle"} 0 1633253812125
container_memory_working_set_bytes{container="main",namespace="a",pod="p"} 1.253376e+06 1633253812200
container_memory_working_set_bytes{container="main",namespace="a",pod="idle"} 5 1633253812200
container_start_time_seconds{container="main",namespace="a",pod="p"} 1.6332525e+09
node_cpu_usage_seconds_total 357.35491 1633253809720
node_memory_working_set_bytes 1.616273408e+09 1633253809720
pod_cpu_usage_seconds_total{namespace="a",pod="p"} 4.7 1633253812125
resource_scrape_error 0
"#;

    fn read(text: &str, pieces: usize) -> Result<NodeSamples, TextError> {
        let now = Timestamp::from_second(1_633_253_813).unwrap();
        let mut reader = Reader::new(now, |key: &ObjectKey| key.name != "elsewhere");
        for piece in text.as_bytes().chunks(pieces) {
            reader.take(piece)?;
        }
        reader.end()
    }

    #[test]
    fn text_is_read_whatever_the_pieces_are() {
        let millis = |millis| Timestamp::from_millisecond(millis).unwrap();
        let main = Point {
            started: Timestamp::from_second(1_633_252_500).unwrap(),
            at: millis(1_633_253_812_125),
            cpu_nanoseconds: 4_710_169_000,
            memory_bytes: 1_253_376,
        };
        let node = Point {
            started: Timestamp::UNIX_EPOCH,
            at: millis(1_633_253_809_720),
            cpu_nanoseconds: 357_354_910_000,
            memory_bytes: 1_616_273_408,
        };
        let expected = NodeSamples {
            node: Some(node),
            pods: [(ObjectKey::new("a", "p"), [("main".into(), main)].into())].into(),
        };
        for pieces in [1, 7, 64, TEXT.len()] {
            assert_eq!(read(TEXT, pieces).as_ref(), Ok(&expected), "{pieces}");
        }
    }

    fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
        let mut text = String::new();
        for _ in 0..random.count() {
            let of = random.pick(&["node", "container", "pod", "a", ""]);
            let name = random.pick(&[
                "cpu_usage_seconds_total",
                "memory_working_set_bytes",
                "start_time_seconds",
            ]);
            let labels =
                ["container", "namespace", "pod"].map(|label| format!("{label}=\"{}\"", random.name()));
            let value = random.pick(&["1", "NaN", "1e300", "-1", "", "x"]);
            let at = random.pick(&["", "1633253812125", "9223372036854775807", "x"]);
            let end = random.pick(&["\n", "\n", "", "#\n"]);
            text.push_str(&format!("{of}_{name}{{{}}} {value} {at}{end}", labels.join(",")));
        }
        text.into_bytes()
    }

    #[test]
    fn resource_metrics_of_any_bytes_are_read() {
        machinery_fuzz::fuzz_built([TEXT], built, |input| {
            let read = |piece: usize| {
                let mut reader = Reader::new(Timestamp::UNIX_EPOCH, |_: &ObjectKey| true);
                input.chunks(piece).try_for_each(|piece| reader.take(piece))?;
                reader.end()
            };
            let whole = machinery_fuzz::in_proportion(input, 32, || read(input.len().max(1)));
            let parts = machinery_fuzz::in_proportion(input, 32, || read(7));
            assert_eq!(parts.is_ok(), whole.is_ok());
        });
    }

    #[test]
    fn text_of_a_hostile_node_is_bounded() {
        let long = format!("node_cpu_usage_seconds_total {}", "1".repeat(MAX_LINE_BYTES));
        for pieces in [100, long.len()] {
            assert_eq!(read(&long, pieces), Err(TextError::LongLine));
        }
        let no_sample = read("node_cpu_usage_seconds_total\n", 10);
        assert!(matches!(no_sample, Err(TextError::NoSample(_))), "{no_sample:?}");
        let mut many = String::new();
        for number in 0..MAX_CONTAINERS + 10 {
            let labels = format!(r#"{{container="c{number}",namespace="a",pod="p"}}"#);
            many.push_str(&format!("container_cpu_usage_seconds_total{labels} 1\n"));
            many.push_str(&format!("container_memory_working_set_bytes{labels} 1\n"));
        }
        let samples = read(&many, 1_000).unwrap();
        assert_eq!(samples.pods[&ObjectKey::new("a", "p")].len(), MAX_CONTAINERS);
        for odd in ["NaN", "-1", "+Inf", "1e300"] {
            let text = format!("node_cpu_usage_seconds_total {odd}\nnode_memory_working_set_bytes {odd}\n");
            read(&text, 10).unwrap();
        }
    }
}
