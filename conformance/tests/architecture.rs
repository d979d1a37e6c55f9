//! Who may use whom: crates, modules of the harness, and the libraries that stay behind one module.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(arguments)
        .args(["--locked", "--offline"])
        .current_dir(root());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn crates_import_along_the_arrows() {
    let text = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&text).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |package: &Value| package["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let mut arrows = BTreeMap::new();
    for package in packages {
        let dependencies = package["dependencies"].as_array().unwrap();
        // Those of tests and build scripts count as well: an arrow is an arrow.
        let imports: BTreeSet<String> = dependencies
            .iter()
            .map(name)
            .filter(|name| ours.contains(name))
            .collect();
        arrows.insert(name(package), imports);
    }
    let expected = [
        (
            "metaroce-conformance",
            vec![
                "metaroce-endpoint",
                "metaroce-reports",
                "metaroce-spec",
                "metaroce-wire",
            ],
        ),
        ("metaroce-endpoint", vec!["metaroce-wire"]),
        ("metaroce-reports", vec![]),
        ("metaroce-spec", vec![]),
        ("metaroce-wire", vec![]),
    ];
    let expected: BTreeMap<String, BTreeSet<String>> = expected
        .into_iter()
        .map(|(from, to)| (from.to_owned(), to.into_iter().map(str::to_owned).collect()))
        .collect();
    assert_eq!(arrows, expected);
}

#[test]
fn the_core_needs_no_runtime_and_the_harness_no_endpoint() {
    let tree = |package: &str| {
        cargo(&[
            "tree",
            "-p",
            package,
            "--no-default-features",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
    };
    let core = tree("metaroce-endpoint");
    assert!(core.contains("metaroce-wire"), "{core}");
    for runtime in ["tokio", "quinn-udp", "socket2", "mio", "rustix"] {
        assert!(
            !core
                .lines()
                .any(|line| line.starts_with(&format!("{runtime} "))),
            "{core}"
        );
    }
    let harness = tree("metaroce-conformance");
    assert!(
        harness.contains("metaroce-wire") && !harness.contains("metaroce-endpoint"),
        "{harness}"
    );
}

/// Every Rust file below `folder`, with its text.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// The modules that each module of the harness names as `crate::module`.
fn modules() -> BTreeMap<String, BTreeSet<String>> {
    let src = root().join("conformance/src");
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources(&src) {
        let first = path
            .strip_prefix(&src)
            .unwrap()
            .components()
            .next()
            .unwrap();
        let module = Path::new(first.as_os_str())
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let named = text.split("crate::").skip(1).map(|rest| {
            let end = rest
                .find(|c: char| !(c.is_ascii_lowercase() || c == '_'))
                .unwrap_or(rest.len());
            rest[..end].to_owned()
        });
        uses.entry(module).or_default().extend(named);
    }
    for (module, named) in &mut uses {
        named.retain(|name| name != module && !name.is_empty());
    }
    uses
}

#[test]
fn judging_knows_nothing_of_links_and_parties() {
    let uses = modules();
    let allowed: &[(&str, &[&str])] = &[
        ("trace", &[]),
        ("evidence", &["trace"]),
        ("model", &["evidence", "trace"]),
        ("monitors", &["evidence", "model", "trace"]),
        (
            "judge",
            &["evidence", "model", "monitors", "payload", "trace"],
        ),
        ("inject", &["evidence", "trace", "units", "yaml"]),
        ("link", &["evidence", "inject", "trace"]),
        ("tester", &["link", "payload", "units"]),
        ("scenario", &["inject", "tester", "trace", "units", "yaml"]),
        ("pics", &["iut", "scenario", "trace", "yaml"]),
        ("iut", &["evidence"]),
        ("filter", &[]),
    ];
    for (module, may) in allowed {
        let named = uses
            .get(*module)
            .unwrap_or_else(|| panic!("there is no module {module}"));
        let beyond: Vec<_> = named
            .iter()
            .filter(|name| !may.contains(&name.as_str()))
            .collect();
        assert!(beyond.is_empty(), "{module} uses {beyond:?}");
    }
    for module in [
        "trace", "evidence", "model", "monitors", "judge", "scenario",
    ] {
        let src = root().join("conformance/src");
        let file = std::fs::read_to_string(src.join(format!("{module}.rs"))).unwrap();
        let below = src.join(module);
        let rest = if below.is_dir() {
            sources(&below)
        } else {
            Vec::new()
        };
        for text in rest.into_iter().map(|(_, text)| text).chain([file]) {
            assert!(
                !text.contains("metaroce_endpoint"),
                "{module} uses the endpoint"
            );
        }
    }
}

#[test]
fn libraries_stay_behind_one_module() {
    // Library, crate, and the only place in it that may name the library.
    let places = [
        ("nom::", "wire-format", "wire-format/src/metaroce"),
        ("etherparse::", "wire-format", "wire-format/src/frame.rs"),
        (
            "pcap_file::",
            "conformance",
            "conformance/src/trace/pcapng.rs",
        ),
        ("serde_saphyr::", "conformance", "conformance/src/yaml.rs"),
        ("serde_saphyr::", "spec", "spec/src/yaml.rs"),
        ("quick_junit::", "reports", "reports/src/junit.rs"),
        ("clap::", "conformance", "conformance/src/main.rs"),
        ("indicatif::", "conformance", "conformance/src/main.rs"),
    ];
    for (library, crate_folder, place) in places {
        let place = root().join(place);
        let users: Vec<PathBuf> = sources(&root().join(crate_folder).join("src"))
            .into_iter()
            .filter(|(_, text)| text.contains(library))
            .map(|(path, _)| path)
            .collect();
        assert!(!users.is_empty(), "{library} is not used in {crate_folder}");
        let astray: Vec<_> = users
            .iter()
            .filter(|path| !path.starts_with(&place))
            .collect();
        assert!(astray.is_empty(), "{library} is used in {astray:?}");
    }
    for (path, text) in sources(&root().join("wire-format/src")) {
        let public = text
            .lines()
            .filter(|line| line.trim_start().starts_with("pub "));
        for line in public {
            assert!(
                !line.contains("nom::") && !line.contains("IResult"),
                "{}: {line}",
                path.display()
            );
        }
    }
}
