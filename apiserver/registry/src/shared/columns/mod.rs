//! Columns of kinds in a Table.
//!
//! The headers (name, type, format, priority, description) are upstream's, in `headers.tsv`; the cells are a function
//! of each kind over its object. A kind without one shows its name and creation time.

pub(crate) mod format;
mod headers;

use jiff::Timestamp;
use machinery_schema::Ref;
use std::borrow::Cow;
use std::sync::Arc;

/// One column's header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Column {
    pub name: String,
    /// OpenAPI's type: `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    pub format: String,
    pub description: Cow<'static, str>,
    /// Zero is always shown, more only in wide output.
    pub priority: i32,
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    /// JSON as it goes into the answer.
    Json(String),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Computes the cells of an object, in the order of the headers.
pub type Cells = dyn Fn(Ref<'_>, Timestamp) -> Vec<Cell> + Send + Sync;

/// A kind's columns.
#[derive(Clone)]
pub struct Columns {
    pub headers: Arc<[Column]>,
    pub cells: Arc<Cells>,
    /// The sort key of an object in a list, for kinds that are not sorted by name.
    pub order: Option<fn(Ref<'_>) -> i64>,
    /// The result of an object that has completed.
    pub completed: Option<fn(Ref<'_>) -> Option<Completed>>,
}

/// The result of a completed object in its row: a reason and a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    pub reason: &'static str,
    pub message: &'static str,
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.headers.iter().map(|head| &head.name))
            .finish()
    }
}

impl Columns {
    pub fn new(
        headers: Vec<Column>,
        cells: impl Fn(Ref<'_>, Timestamp) -> Vec<Cell> + Send + Sync + 'static,
    ) -> Self {
        Self {
            headers: headers.into(),
            cells: Arc::new(cells),
            order: None,
            completed: None,
        }
    }

    /// Name and creation time, for kinds without columns of their own.
    pub fn name_and_created() -> Self {
        let headers = vec![
            name_header(),
            Column {
                name: "Created At".into(),
                kind: "date".into(),
                description: created_description(),
                ..Column::default()
            },
        ];
        Self::new(headers, |object, _| {
            let created = object.str_at(&["metadata", "creationTimestamp"]);
            let created = if created.is_empty() { "<unknown>" } else { created };
            vec![object.str_at(&["metadata", "name"]).into(), created.into()]
        })
    }
}

/// Computes the cells of a built-in kind's object.
pub(crate) type KindCells = fn(Ref<'_>, Timestamp) -> Vec<Cell>;

/// Headers of a built-in resource (`group/version/plural`), as upstream has them.
pub(crate) fn headers_of(resource: &str) -> Option<Vec<Column>> {
    headers::of_resource(resource)
}

/// The columns of autoscaling/v1 `Scale`, which is no resource of its own.
pub fn scale() -> Columns {
    let header = |name: &str, kind: &str, description| Column {
        name: name.into(),
        kind: kind.into(),
        description,
        ..Column::default()
    };
    let headers = vec![
        header("Name", "string", name_header().description),
        header(
            "Desired",
            "integer",
            "replicas is the desired number of instances for the scaled object.".into(),
        ),
        header(
            "Available",
            "integer",
            "replicas is the actual number of observed instances of the scaled object.".into(),
        ),
        header("Age", "string", created_description()),
    ];
    Columns::new(headers, |scale, now| {
        vec![
            format::name(scale),
            format::int(scale, &["spec", "replicas"]).into(),
            format::int(scale, &["status", "replicas"]).into(),
            format::object_age(scale, now),
        ]
    })
}

/// `Name`, first of every table.
pub fn name_header() -> Column {
    Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        description: Cow::Borrowed(headers::shared("name")),
        priority: 0,
    }
}

/// Upstream's description of a column that shows the creation time.
pub fn created_description() -> Cow<'static, str> {
    Cow::Borrowed(headers::shared("age"))
}

/// The time since, in upstream's short form (`5d3h`); `<unknown>` without one.
pub fn age(since: &str, now: Timestamp) -> String {
    let Ok(since) = since.parse::<Timestamp>() else {
        return "<unknown>".into();
    };
    human_duration(now.as_second() - since.as_second())
}

/// Upstream's `HumanDuration`: two units at most, fewer as the span grows.
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    if seconds < 0 {
        return "0s".into();
    }
    let two = |whole: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{small}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(hours / 24, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        () => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::human_duration;

    #[track_caller]
    fn check(seconds: i64, expected: &str) {
        assert_eq!(human_duration(seconds), expected, "{seconds}");
    }

    #[test]
    fn durations() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (601, "10m"),
            (179 * 60, "179m"),
            (180 * 60, "3h"),
            (181 * 60, "3h1m"),
            (8 * 3600, "8h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (2 * 365 * 86400, "2y"),
        ] {
            check(seconds, expected);
        }
    }
}
