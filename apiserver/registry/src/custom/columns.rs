//! Printer columns of a version.

use super::json_path::JsonPath;
use crate::shared::columns::{Cell, Column, Columns, age, created_description, name_header};
use jiff::Timestamp;
use machinery_schema::Ref;

/// `Name` and the declared columns; `Age` when there are none.
pub(super) fn columns(version: Ref<'_>) -> Columns {
    let mut headers = vec![name_header()];
    let mut paths: Vec<(String, Option<JsonPath>)> = Vec::new();
    for declared in version.list("additionalPrinterColumns") {
        let path = declared.str("jsonPath");
        let description = match declared.str("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            text => text.to_owned(),
        };
        let priority = declared
            .get("priority")
            .and_then(Ref::as_i64)
            .and_then(|p| i32::try_from(p).ok());
        headers.push(Column {
            name: declared.str("name").to_owned(),
            kind: declared.str("type").to_owned(),
            format: declared.str("format").to_owned(),
            description: description.into(),
            priority: priority.unwrap_or(0),
        });
        paths.push((declared.str("type").to_owned(), JsonPath::parse(path)));
    }
    if paths.is_empty() {
        headers.push(Column {
            name: "Age".into(),
            kind: "date".into(),
            description: created_description(),
            ..Column::default()
        });
        paths.push(("date".into(), JsonPath::parse(".metadata.creationTimestamp")));
    }
    Columns::new(headers, move |object, now| {
        let mut cells = vec![object.str_at(&["metadata", "name"]).into()];
        cells.extend(paths.iter().map(|(kind, path)| {
            path.as_ref()
                .and_then(|path| path.find(object))
                .map_or(Cell::Null, |found| cell(kind, found, now))
        }));
        cells
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a column of integers shows floats without their fraction"
)]
fn cell(kind: &str, value: Ref<'_>, now: Timestamp) -> Cell {
    match kind {
        "string" => Cell::Text(value.as_str().map_or_else(|| value.to_json(), str::to_owned)),
        "integer" => match (value.as_i64(), value.as_f64()) {
            (Some(number), _) => Cell::Int(number),
            (None, Some(number)) => Cell::Int(number as i64),
            _ => Cell::Null,
        },
        "number" if value.as_f64().is_some() => Cell::Json(value.to_json()),
        "boolean" => value.as_bool().map_or(Cell::Null, Cell::Bool),
        "date" => match value.as_str() {
            Some(text) if text.parse::<Timestamp>().is_ok() => Cell::Text(age(text, now)),
            Some(_) => Cell::Text("<invalid>".into()),
            None => Cell::Null,
        },
        _ => Cell::Null,
    }
}
