//! Draws series: one line of blocks, a chart of braille dots, or an SVG file.

use std::fmt::Write;
use std::path::Path;

use super::series::Series;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters of a one-line chart.
const SPARK: usize = 32;
/// A chart's size in characters; each has two by four dots.
const COLUMNS: usize = 60;
const ROWS: usize = 5;
/// One small chart of a file, in pixels.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 120.0;
const MARGIN: f64 = 24.0;

/// Divides the series into at most `n` pieces of equal length; returns the mean of each, or `None` without values.
fn pieces(series: &Series, n: usize) -> Vec<Option<f64>> {
    let count = series.points.len();
    let n = n.min(count);
    (0..n)
        .map(|i| {
            let values: Vec<f64> =
                series.points[i * count / n..(i + 1) * count / n].iter().filter_map(|(_, v)| *v).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        })
        .collect()
}

/// One line: the height of a block is the value between 0 and the greatest.
pub(super) fn spark(series: &Series) -> String {
    let most = series.range().map_or(0.0, |(_, _, most)| most);
    let block = |v: f64| match most > 0.0 {
        true => BLOCKS[((v / most * 7.0).round() as usize).min(7)],
        false => BLOCKS[0],
    };
    pieces(series, SPARK).into_iter().map(|v| v.map_or(' ', block)).collect()
}

/// A chart of several lines of braille dots, with the scale beside it.
pub(super) fn chart(series: &Series) -> String {
    // Bits of the dots of a character: the left column from the top, then the right column (Unicode 2800).
    const DOTS: [[u8; 4]; 2] = [[0, 1, 2, 6], [3, 4, 5, 7]];
    let most = series.range().map_or(0.0, |(_, _, most)| most);
    let values = pieces(series, COLUMNS * 2);
    let mut cells = vec![[0u8; COLUMNS]; ROWS];
    for (x, value) in values.iter().enumerate() {
        let Some(v) = value else { continue };
        let height = ROWS * 4 - 1;
        let up = if most > 0.0 { ((v / most * height as f64).round() as usize).min(height) } else { 0 };
        let y = height - up;
        cells[y / 4][x / 2] |= 1 << DOTS[x % 2][y % 4];
    }
    let mut out = String::new();
    for (row, line) in cells.iter().enumerate() {
        let scale = match row {
            0 => short(most),
            r if r + 1 == ROWS => "0".to_owned(),
            _ => String::new(),
        };
        let line: String = line.iter().filter_map(|b| char::from_u32(0x2800 + u32::from(*b))).collect();
        let _ = writeln!(out, "{scale:>10} ┤{}", line.trim_end_matches('\u{2800}'));
    }
    out
}

/// A file: an SVG, or an HTML page around one.
pub(super) fn file(path: &Path, series: &[Series]) -> String {
    let svg = svg(series);
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("svg")) {
        return svg;
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Counters</title></head>\n<body>\n{svg}</body></html>\n"
    )
}

fn svg(series: &[Series]) -> String {
    // Constant series are not drawn.
    let moved: Vec<&Series> = series
        .iter()
        .filter(|s| s.range().is_some_and(|(least, _, most)| least != 0.0 || most != 0.0))
        .collect();
    let (across, step) = (2, (WIDTH + 2.0 * MARGIN, HEIGHT + 3.0 * MARGIN));
    let height = moved.len().div_ceil(across) as f64 * step.1 + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        step.0 * across as f64
    );
    for (i, s) in moved.iter().enumerate() {
        let (x, y) = ((i % across) as f64 * step.0 + MARGIN, (i / across) as f64 * step.1 + 2.0 * MARGIN);
        let _ = writeln!(out, "<g transform=\"translate({x:.0},{y:.0})\">");
        out += &small(s);
        out += "</g>\n";
    }
    out + "</svg>\n"
}

fn small(series: &Series) -> String {
    let most = series.range().map_or(0.0, |(_, _, most)| most);
    let scale = if most > 0.0 { HEIGHT / most } else { 0.0 };
    let (first, last) = match (series.points.first(), series.points.last()) {
        (Some(f), Some(l)) => (f.0, l.0),
        _ => (0, 0),
    };
    let span = last.saturating_sub(first).max(1) as f64;
    let mut line = String::new();
    let mut pen_up = true;
    for (at, value) in &series.points {
        let Some(v) = value else {
            pen_up = true;
            continue;
        };
        let command = if std::mem::replace(&mut pen_up, false) { 'M' } else { 'L' };
        let _ = write!(
            line,
            "{command}{:.1} {:.1}",
            (at.saturating_sub(first)) as f64 / span * WIDTH,
            HEIGHT - v * scale
        );
    }
    format!(
        "<text y=\"-16\" font-weight=\"bold\">{}</text><text y=\"-4\" fill=\"gray\">{}({}), {:.0} s, up to {} {}</text>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"lightgray\"/>\n\
         <path d=\"{line}\" fill=\"none\" stroke=\"steelblue\" stroke-width=\"1.5\"/>\n",
        escape(&series.counter),
        escape(&series.set),
        escape(&series.instance),
        span / 1000.0,
        short(most),
        escape(&series.unit),
    )
}

/// Three or four digits and a decimal prefix.
fn short(v: f64) -> String {
    let (scaled, prefix) = match v.abs() {
        a if a >= 1e9 => (v / 1e9, " G"),
        a if a >= 1e6 => (v / 1e6, " M"),
        a if a >= 1e3 => (v / 1e3, " k"),
        a if a >= 1.0 || a == 0.0 => (v, ""),
        a if a >= 1e-3 => (v * 1e3, " m"),
        _ => (v * 1e6, " µ"),
    };
    let digits = if scaled.abs() >= 100.0 || scaled == scaled.trunc() { 0 } else { 2 };
    format!("{scaled:.digits$}{prefix}")
}

fn escape(text: &str) -> String {
    crate::output::printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[Option<f64>]) -> Series {
        let points = values.iter().enumerate().map(|(i, v)| (i as u64 * 1000, *v)).collect();
        Series {
            set: "S".into(),
            instance: "<i>".into(),
            counter: "C & D".into(),
            unit: "B/s".into(),
            points,
        }
    }

    #[test]
    fn a_line_of_blocks() {
        assert_eq!(spark(&series(&[Some(0.0), Some(3.5), None, Some(7.0)])), "▁▅ █");
        assert_eq!(spark(&series(&[Some(0.0); 3])), "▁▁▁");
        assert_eq!(spark(&series(&[])), "");
        let many: Vec<_> = (0..1000).map(|i| Some(f64::from(i))).collect();
        assert_eq!(spark(&series(&many)).chars().count(), SPARK);
    }

    #[test]
    fn a_chart_has_its_least_below_and_its_most_above() {
        let text = chart(&series(&[Some(0.0), Some(2000.0)]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), ROWS);
        assert_eq!(lines[0], "       2 k ┤\u{2808}");
        assert_eq!(lines[ROWS - 1], "         0 ┤\u{2840}");
    }

    #[test]
    fn files_are_well_formed() {
        let moved = series(&[Some(1.0), None, Some(2.0), Some(0.5)]);
        let text = file(Path::new("x.svg"), &[moved.clone(), series(&[Some(0.0)])]);
        assert_eq!(text.matches("<path").count(), 1, "what never moved is left out");
        assert!(
            text.contains("C &amp; D")
                && text.contains("&lt;i&gt;")
                && text.contains("M0.0 60.0M306.7 0.0L460.0 90.0"),
            "{text}"
        );
        assert!(file(Path::new("x.html"), &[moved]).starts_with("<!DOCTYPE html>"));
    }

    #[test]
    fn short_numbers() {
        for (v, text) in [
            (0.0, "0"),
            (1.5, "1.50"),
            (123.4, "123"),
            (1e9, "1 G"),
            (2_500.0, "2.50 k"),
            (0.000_25, "250 µ"),
            (0.004, "4 m"),
        ] {
            assert_eq!(short(v), text);
        }
    }
}
