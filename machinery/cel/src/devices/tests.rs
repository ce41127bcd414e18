//! Upstream's table (`cel/compile_test.go`), less attributes that are lists, whose gate is off.

use super::*;

type Attributes<'a> = &'a [(&'a str, DeviceAttribute)];

fn text(own: &str) -> DeviceAttribute {
    DeviceAttribute::String(own.into())
}

fn version(own: &str) -> DeviceAttribute {
    DeviceAttribute::Version(own.into())
}

#[track_caller]
fn check_device(
    driver: &str,
    attributes: Attributes<'_>,
    capacity: &[(&str, &str)],
    expression: &str,
    (expected, cost): (Result<bool, &str>, u64),
) {
    let selector = DeviceSelector::compile(expression, true).unwrap();
    let capacity = capacity
        .iter()
        .map(|(name, amount)| (*name, amount.parse().unwrap()));
    let attributes = attributes.iter().map(|(name, value)| (*name, value));
    let device = DeviceValue::new(driver, false, attributes, capacity).unwrap();
    let found = selector.matches(&device);
    match (&found.matches, expected) {
        (Ok(own), Ok(expected)) => assert_eq!(*own, expected, "{expression}"),
        (Err(why), Err(part)) => assert!(why.contains(part), "{expression}: {why}"),
        other => panic!("{expression}: {other:?}"),
    }
    assert_eq!(selector.max_cost(), cost, "{expression}");
}

/// A device of `dra.example.com`, or of the driver that the expression does not name.
#[track_caller]
fn check(attributes: Attributes<'_>, expression: &str, expected: (Result<bool, &str>, u64)) {
    check_device("dra.example.com", attributes, &[], expression, expected);
}

#[test]
fn device_selectors_have_upstreams_answers_and_costs() {
    let named = [("name", DeviceAttribute::Bool(true))];
    check(&[], "true", (Ok(true), 0));
    check(&[], "false", (Ok(false), 0));
    check(
        &[],
        r#"device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))"#,
        (
            Err("no such key: noSuchAttr. Consider using CEL optional chaining"),
            6,
        ),
    );
    check(
        &[],
        r#"device.attributes["no-such-domain"]["noSuchAttr"].isGreaterThan(quantity("0"))"#,
        (Err("no such key: noSuchAttr"), 6),
    );
    check(&[], r#""no-such-domain" in device.attributes"#, (Ok(false), 3));
    check(
        &[("dra.example.com/something", DeviceAttribute::Bool(true))],
        r#""dra.example.com" in device.attributes"#,
        (Ok(true), 3),
    );
    check_device("", &[], &[], r#"device.driver == """#, (Ok(true), 2));
    check(&[], r#"device.driver == "dra.example.com""#, (Ok(true), 4));
    check(
        &named,
        r#"device.attributes["dra.example.com"].name"#,
        (Ok(true), 4),
    );
    check(
        &named,
        r#"device.attributes["dra.example.com"]["name"]"#,
        (Ok(true), 4),
    );
    check(
        &named,
        r#"cel.bind(dra, device.attributes["dra.example.com"], dra.name)"#,
        (Ok(true), 15),
    );
    check(
        &[("other.example.com/name", DeviceAttribute::Bool(true))],
        r#"device.attributes["other.example.com"].name"#,
        (Ok(true), 4),
    );
    check(
        &[("name", DeviceAttribute::Int(1))],
        r#"device.attributes["dra.example.com"].name > 0"#,
        (Ok(true), 5),
    );
    check(
        &[("name", text("fish"))],
        r#"device.attributes["dra.example.com"].name == "fish""#,
        (Ok(true), 5),
    );
    check(
        &[("name", text("fish"))],
        r#"device.attributes["dra.example.com"].name"#,
        (Err("CEL result of type string could not be converted to bool"), 4),
    );
    check(
        &[("name", version("1.0.0"))],
        r#"device.attributes["dra.example.com"].name.isGreaterThan(semver("0.0.1"))"#,
        (Ok(true), 6),
    );
    check(
        &[("name", version("1.0.0"))],
        r#"device.attributes["dra.example.com"].name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)"#,
        (Ok(true), 7),
    );
    check(
        &[("services", text("some_example_value"))],
        r#"device.attributes.exists_one(x, x == "dra.example.com")"#,
        (Ok(true), 164),
    );
    check(
        &[("services", text("some_example_value"))],
        r#"device.attributes["dra.example.com"].exists_one(x, x == "services")"#,
        (Ok(true), 133),
    );
    check(
        &[("services", text("some_example_value"))],
        r#"device.attributes["dra.example.com"].services.split("example").size() >= 2"#,
        (Ok(true), 19),
    );
    check(
        &[("services", text("asymetric"))],
        r#"device.attributes["dra.example.com"].services.matches("[^a]?sym")"#,
        (Ok(true), 18),
    );
    check(&[], "device.allowMultipleAllocations == false", (Ok(true), 3));
}

#[test]
fn device_selectors_see_capacity_and_are_limited_in_cost() {
    let driver = "dra.example.com";
    let name = [("name", "1Mi")];
    for (capacity, expression, expected) in [
        (
            &name[..],
            r#"device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#,
            (Ok(true), 6),
        ),
        (
            &name,
            r#""name" in device.capacity["dra.example.com"] && device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#,
            (Ok(true), 10),
        ),
        (
            &[],
            r#"!("name" in device.capacity["dra.example.com"]) || device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#,
            (Ok(true), 11),
        ),
        (
            &[("memory", "1Mi")],
            r#"device.capacity.exists_one(x, x == "dra.example.com")"#,
            (Ok(true), 164),
        ),
        (
            &[("memory", "1Mi")],
            r#"device.capacity["dra.example.com"].exists_one(x, x == "memory")"#,
            (Ok(true), 133),
        ),
    ] {
        check_device(driver, &[], capacity, expression, expected);
    }
    let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let nested = ["x", "y", "z", "z2", "z3", "z4", "z5"].map(|own| format!("{ten}.all({own}, "));
    let expensive = format!(
        "{}int('1'.find('[0-9]*')) < 100{}",
        nested.concat(),
        ")".repeat(7)
    );
    check(&[], &expensive, (Err("actual cost limit exceeded"), 85_555_551));
}

#[test]
fn device_selector_that_is_no_question_is_refused() {
    for (expression, part) in [
        ("?!", "Syntax error"),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("device.nothing", "undefined field 'nothing'"),
        ("object.x", "undeclared reference to 'object'"),
    ] {
        let problem = DeviceSelector::compile(expression, false)
            .unwrap_err()
            .to_string();
        assert!(problem.contains(part), "{expression}: {problem}");
    }
}

#[test]
fn device_attribute_with_the_drivers_domain_counts_more_than_one_without() {
    let attributes = [("dra.example.com/a", text("own")), ("a", text("other"))];
    check(
        &attributes,
        r#"device.attributes["dra.example.com"].a == "own""#,
        (Ok(true), 5),
    );
    let unsupported = [("a", &DeviceAttribute::Unsupported)];
    let device = DeviceValue::new("d", false, unsupported, []);
    assert_eq!(device.unwrap_err(), "attribute a: unsupported attribute value");
}
