//! The answer to a question about a graph, kept by differential-dataflow on one thread.
//!
//!     question closure|components|paths FILE OUT SUMS BATCH      the graph in one epoch, then its changes, BATCH an epoch
//!
//! FILE holds lines "r node", "e id from to", "+ id from to", "- id from to". An edge's weight is a function of its ends.
//! Timed: inserting, stepping until the result is out, reading its delta.

use std::{cell::RefCell, collections::HashMap, fs, rc::Rc, time::Instant};

use ddpeer::{Pair, Story};
use differential_dataflow::{input::Input, operators::*, VecCollection};
use timely::dataflow::operators::probe::Handle;

type Pairs<'a> = VecCollection<'a, usize, Pair, isize>;

/// What has come out so far: the rows, and Σ (x + 1) × (y + 1).
#[derive(Default)]
struct Seen {
    rows: HashMap<Pair, isize>,
    total: i64,
}

impl Seen {
    fn add(&mut self, row: Pair, weight: isize) {
        self.total += weight as i64 * (row.0 as i64 + 1) * (row.1 as i64 + 1);
        let sum = self.rows.entry(row).or_insert(0);
        *sum += weight;
        if *sum == 0 {
            self.rows.remove(&row);
        }
    }
}

/// (b, a) for all that `seed` holds, and for all b that edges reach from there.
fn reach<'a>(seed: Pairs<'a>, edges: Pairs<'a>) -> Pairs<'a> {
    seed.clone().iterate(|inner, x| {
        let (edges, seed) = (edges.enter(inner), seed.enter(inner));
        x.join_map(edges, |_, a, to| (*to, *a))
            .concat(seed)
            .distinct()
    })
}

fn closure<'a>(edges: Pairs<'a>) -> Pairs<'a> {
    let seed = edges.clone().map(|(a, b)| (b, a));
    reach(seed, edges).map(|(b, a)| (a, b))
}

fn components<'a>(edges: Pairs<'a>) -> Pairs<'a> {
    let seed = edges
        .clone()
        .flat_map(|(a, b)| [a, b])
        .distinct()
        .map(|node| (node, node));
    let pairs = reach(seed, edges);
    let there = pairs.clone().map(|(b, a)| ((a, b), ()));
    let back = pairs.map(|(b, a)| ((b, a), ()));
    there
        .join_map(back, |(a, b), _, _| (*a, *b))
        .reduce(|_, nodes, least| least.push((*nodes[0].0, 1)))
}

fn paths<'a>(root: Pairs<'a>, edges: Pairs<'a>) -> Pairs<'a> {
    let weighted = edges.map(|(a, b)| (a, (b, 1 + (7 * a + 13 * b) % 10)));
    root.clone().iterate(|inner, x| {
        let (edges, root) = (weighted.enter(inner), root.enter(inner));
        x.join_map(edges, |_, cost, (to, weight)| (*to, cost + weight))
            .concat(root)
            .reduce(|_, offered, least| least.push((*offered[0].0, 1)))
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let question = arguments[1].clone();
    let batch: usize = arguments[5].parse().unwrap();
    let story = Story::read(&arguments[2]);
    timely::execute_directly(move |worker| {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let (sink, mut probe) = (seen.clone(), Handle::new());
        let (mut edges, mut starts) = worker.dataflow::<usize, _, _>(|scope| {
            let (edge_input, edges) = scope.new_collection::<Pair, isize>();
            let (root_input, root) = scope.new_collection::<Pair, isize>();
            let rows = match question.as_str() {
                "closure" => closure(edges),
                "components" => components(edges),
                _ => paths(root, edges),
            };
            rows.consolidate()
                .inspect(move |(row, _, weight)| sink.borrow_mut().add(*row, *weight))
                .probe_with(&mut probe);
            (edge_input, root_input)
        });
        for root in &story.roots {
            starts.insert((*root, 0));
        }
        starts.close();
        let mut epoch = 0;
        let run = |updates: &[(Pair, isize)]| {
            let begun = Instant::now();
            for (edge, weight) in updates {
                edges.update(*edge, *weight);
            }
            epoch += 1;
            edges.advance_to(epoch);
            edges.flush();
            worker.step_while(|| probe.less_than(edges.time()));
            begun.elapsed().as_secs_f64()
        };
        let sums = story.follow(batch, run, || seen.borrow().total);
        let rows = seen.borrow();
        let lines = rows.rows.keys().map(|(x, y)| format!("{x} {y}\n"));
        fs::write(&arguments[3], lines.collect::<String>()).unwrap();
        fs::write(&arguments[4], sums).unwrap();
    });
}
