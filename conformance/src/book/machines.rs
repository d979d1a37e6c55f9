//! The state machines as drawings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use metaroce_spec::{StateTable, TableError, Transition};

use super::{Files, Material};

/// Height of a leg between a box and its lane, and width of a lane, px.
const LEG: usize = 22;
const LANE: usize = 14;
/// Width of a box, and width of a letter of a label, px.
const BOX: usize = 120;
const LETTER: usize = 7;
/// Space between two boxes, px.
const GAP: usize = 18;

pub(super) fn pages(material: &Material, files: &mut Files) -> Result<(), TableError> {
    let mut index = String::from(
        "# State diagrams\n\nA dashed line is a step that needs a feature. The tables, with conditions and clauses, stand in the chapters.\n",
    );
    for table in metaroce_spec::states()? {
        let _ = writeln!(
            index,
            "\n## {}\n\n{}.\n\n{}",
            table.name,
            table.machine,
            draw(&table)
        );
        index.push_str("\n| from | on | to | clauses |\n|---|---|---|---|\n");
        for step in &table.transitions {
            let clauses: Vec<String> = step
                .clauses
                .iter()
                .map(|id| material.link(id, ""))
                .collect();
            let _ = writeln!(
                index,
                "| {} | {} | {} | {} |",
                words(&step.from),
                words(&step.on),
                words(&step.to),
                clauses.join(", ")
            );
        }
    }
    files.insert("src/states.md".to_owned(), index);
    Ok(())
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// An arrow between two states: all steps between them.
struct Arrow<'t> {
    from: usize,
    to: usize,
    steps: Vec<&'t Transition>,
    /// Heights of its two legs, and its lane from the left.
    legs: (usize, usize),
    lane: usize,
}

impl Arrow<'_> {
    fn label(&self) -> String {
        let mut names: Vec<String> = self.steps.iter().map(|step| words(&step.on)).collect();
        names.dedup();
        names.join(", ")
    }

    fn span(&self) -> usize {
        self.from.abs_diff(self.to)
    }

    fn optional(&self) -> bool {
        self.steps.iter().all(|step| !step.requires.is_empty())
    }
}

/// An SVG: the states below each other, and to their right a lane for every arrow, so that no two lines and no two
/// labels lie on each other.
fn draw(table: &StateTable) -> String {
    let place: BTreeMap<&str, usize> = table
        .states
        .iter()
        .enumerate()
        .map(|(i, state)| (state.name.as_str(), i))
        .collect();
    let mut arrows: Vec<Arrow<'_>> = Vec::new();
    for step in &table.transitions {
        let (Some(&from), Some(&to)) = (place.get(step.from.as_str()), place.get(step.to.as_str()))
        else {
            continue;
        };
        match arrows.iter_mut().find(|a| (a.from, a.to) == (from, to)) {
            Some(arrow) => arrow.steps.push(step),
            None => arrows.push(Arrow {
                from,
                to,
                steps: vec![step],
                legs: (0, 0),
                lane: 0,
            }),
        }
    }
    // Short ways lie within long ones.
    arrows.sort_by_key(Arrow::span);
    for (lane, arrow) in arrows.iter_mut().enumerate() {
        arrow.lane = lane;
    }
    let mut boxes = Vec::new();
    let mut y = GAP;
    for state in 0..table.states.len() {
        let top = y;
        y += 6;
        for arrow in &mut arrows {
            if arrow.to == state {
                arrow.legs.1 = y + LEG / 2;
                y += LEG;
            }
            if arrow.from == state {
                arrow.legs.0 = y + LEG / 2;
                y += LEG;
            }
        }
        y += 6;
        boxes.push((top, y - top));
        y += GAP;
    }
    let longest = arrows.iter().map(|a| a.label().len()).max().unwrap_or(0);
    let lanes = BOX + 40 + longest * LETTER;
    let (width, height) = (lanes + (arrows.len() + 1) * LANE, y);
    let mut out = format!(
        "<svg class=\"machine\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"states of {}\" font-family=\"sans-serif\" font-size=\"12\" stroke=\"currentColor\" fill=\"none\">\n",
        table.machine
    );
    for (state, (top, tall)) in table.states.iter().zip(&boxes) {
        let heavy = if state.initial { 3 } else { 1 };
        let (left, round) = (10, if state.is_final { 14 } else { 2 });
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{BOX}\" height=\"{tall}\" rx=\"{round}\" stroke-width=\"{heavy}\"/>"
        );
        let (x, y) = (left + BOX / 2, top + tall / 2 + 4);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" stroke=\"none\" fill=\"currentColor\" font-weight=\"bold\">{}</text>",
            words(&state.name)
        );
    }
    let right = 10 + BOX;
    for arrow in &arrows {
        let (from, to) = arrow.legs;
        let lane = lanes + arrow.lane * LANE;
        let dashes = if arrow.optional() {
            " stroke-dasharray=\"5 3\""
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<path d=\"M{right} {from} H{lane} V{to} H{}\"{dashes}/>",
            right + 7
        );
        let _ = writeln!(
            out,
            "<path d=\"M{right} {to} l8 -4 v8 z\" fill=\"currentColor\" stroke=\"none\"/>"
        );
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" stroke=\"none\" fill=\"currentColor\">{}</text>",
            right + 12,
            from - 4,
            arrow.label()
        );
    }
    out.push_str("</svg>\n\nThe heavy box is where it starts, round ones are where it may end.\n");
    out
}
