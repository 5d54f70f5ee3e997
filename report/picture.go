package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// picture is one picture, laid out by gonum/plot: once for wide pages and once for phones, so that text keeps its size on both.
type picture struct {
	id string
	// title stands above it unless the section's own heading will do (untitled); note says what to see or how it was measured; desc tells
	// those who cannot see it what it shows.
	title, note, desc string
	untitled          bool
	x, y              axis
	// height of the wide layout, in pixels.
	height float64
	lines  []line
	spots  []spot
	bars   []bar
	keys   []key
}

// line is a series of points with rising x; each run of points is joined, and runs are not joined with one another.
type line struct {
	name  string
	style stroke
	runs  []plotter.XYs
}

// stroke is how a line looks, in the picture and in its legend.
type stroke struct {
	ink    ink
	width  float64
	dashes []float64
}

var (
	strokeMain   = stroke{ink: inkMain, width: 2}
	strokeDashed = stroke{ink: inkText, width: 1.5, dashes: []float64{6, 3}}
	strokeMuted  = stroke{ink: inkMuted, width: 1.5, dashes: []float64{1.5, 2.5}}
	strokeFaint  = stroke{ink: inkFaint, width: 5}
	strokeText   = stroke{ink: inkText, width: 1.5}
)

// spot is a point of its own, with a range where low and high are not both 0.
type spot struct {
	x, y      float64
	low, high float64
	// shape is "dot", "ring", "cross", or "" for the range alone.
	shape string
	ink   ink
}

// bar lies from x0 to x1 in row y, rows counting upwards from 0.
type bar struct {
	x0, x1 float64
	row    int
	ink    ink
}

// key is an entry of the legend, which is text of the page above the picture, never over the data.
type key struct {
	Name   string
	Ink    ink
	Width  string
	Dashes string
	// Shape is "line", "dot", "ring", "cross", "range" or "box".
	Shape string
}

// size of a layout in pixels, and its text.
type size struct{ width, height, text float64 }

const (
	wideWidth, narrowWidth = 960, 344
	wideText, narrowText   = 13, 11.5
	roomPerLabelX          = 6.5 // label widths of text size per label along x
	roomPerLabelY          = 2.6 // lines of text per label along y
)

// add puts a line with at least one point into the picture and its legend.
func (f *picture) add(name string, s stroke, runs ...plotter.XYs) {
	var filled []plotter.XYs
	for _, r := range runs {
		if len(r) > 0 {
			filled = append(filled, r)
		}
	}
	if len(filled) == 0 {
		return
	}
	f.lines = append(f.lines, line{name: name, style: s, runs: filled})
	if name == "" {
		return
	}
	dashes := ""
	for i, d := range s.dashes {
		if i > 0 {
			dashes += " "
		}
		dashes += number(d)
	}
	f.keys = append(f.keys, key{Name: name, Ink: s.ink, Width: number(s.width), Dashes: dashes, Shape: "line"})
}

// empty says that there is nothing to draw.
func (f *picture) empty() bool { return len(f.lines) == 0 && len(f.spots) == 0 && len(f.bars) == 0 }

// wide and narrow are the two layouts.
func (f *picture) wide() string {
	return f.draw(f.id+"-w", size{wideWidth, f.height, wideText})
}

func (f *picture) narrow() string {
	return f.draw(f.id+"-n", size{narrowWidth, math.Max(190, f.height*0.8), narrowText})
}

// draw lays the picture out.
func (f *picture) draw(id string, s size) string {
	c := newCanvas(s.width, s.height)
	p := plot.New()
	p.BackgroundColor = nil
	face := font.From(font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans"}, vg.Length(s.text))
	f.x.apply(&p.X, face, int(s.width/s.text/roomPerLabelX))
	f.y.apply(&p.Y, face, int(s.height/s.text/roomPerLabelY))
	p.X.LineStyle = draw.LineStyle{Color: inkMuted, Width: 1}
	p.X.Tick.LineStyle = draw.LineStyle{Color: inkMuted, Width: 1}
	p.X.Tick.Length = vg.Length(s.text / 2)
	if len(f.bars) == 0 {
		p.Y.LineStyle.Width = 0
	}
	p.Add(grid{x: f.x.log || len(f.bars) > 0, y: len(f.bars) == 0})
	p.Add(bars(f.bars))
	for i := range f.lines {
		p.Add(&f.lines[i])
	}
	p.Add(spots(f.spots))
	whole := draw.NewCanvas(c, vg.Length(s.width), vg.Length(s.height))
	// The labels are ours: that of y stands above the axis, where it needs no turned head, and gonum keeps room for that of x in a wrong place
	// where the axis is logarithmic.
	bottom, top := 1.7*s.text, 0.0
	if f.y.label != "" {
		top = 2.2 * s.text
	}
	inner := draw.Crop(whole, 0, -2, vg.Length(bottom), vg.Length(-top))
	// Pictures above one another have their axes above one another, unless one has wide labels.
	if room := vg.Length(4.4 * s.text); p.DataCanvas(inner).Min.X < room {
		inner = draw.Crop(inner, room-p.DataCanvas(inner).Min.X, 0, 0, 0)
	}
	apart(&p.X, p.DataCanvas(inner).Size().X)
	p.Draw(inner)
	label := p.Y.Label.TextStyle
	label.Color = inkAxis
	label.XAlign, label.YAlign = draw.XLeft, draw.YTop
	whole.FillText(label, vg.Point{Y: whole.Max.Y - 1}, f.y.label)
	label.XAlign, label.YAlign = draw.XCenter, draw.YBottom
	data := p.DataCanvas(inner)
	whole.FillText(label, vg.Point{X: data.Center().X, Y: vg.Length(s.text * 0.3)}, f.x.label)
	return c.svg(id, f.title, f.desc)
}

// apply makes a gonum axis of a. Ticks are chosen for about room labels.
func (a *axis) apply(to *plot.Axis, face font.Font, room int) {
	to.Min, to.Max, to.Padding = a.low, a.high, 0
	if a.log {
		to.Scale = plot.LogScale{}
	}
	to.Label.TextStyle.Font, to.Label.TextStyle.Color = face, inkMuted
	to.Tick.Label.Font, to.Tick.Label.Color = face, inkMuted
	to.Tick.LineStyle.Width, to.Tick.Length = 0, 0
	to.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { return a.marks(low, high, room) })
}

// apart takes the labels away that would touch the one before them on a horizontal axis of a length; their ticks stay.
func apart(a *plot.Axis, length vg.Length) {
	all := a.Tick.Marker
	a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := all.Ticks(low, high)
		end := vg.Length(math.Inf(-1))
		for i := range ticks {
			if ticks[i].Label == "" {
				continue
			}
			middle, half := vg.Length(a.Norm(ticks[i].Value))*length, a.Tick.Label.Width(ticks[i].Label)/2
			if middle-half < end+a.Tick.Label.Font.Size/2 {
				ticks[i].Label = ""
				continue
			}
			end = middle + half
		}
		return ticks
	})
}

// grid are faint lines at the labelled ticks.
type grid struct{ x, y bool }

func (g grid) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: inkGrid, Width: 1}
	if g.y {
		for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
			if y := c.Y(p.Y.Norm(t.Value)); !t.IsMinor() && c.ContainsY(y) {
				c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
			}
		}
	}
	if g.x {
		for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if x := c.X(p.X.Norm(t.Value)); !t.IsMinor() && c.ContainsX(x) {
				c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
			}
		}
	}
}

// Plot draws the runs of l, thinned to the pixels that there are.
func (l *line) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	style := draw.LineStyle{Color: l.style.ink, Width: vg.Length(l.style.width)}
	for _, d := range l.style.dashes {
		style.Dashes = append(style.Dashes, vg.Length(d))
	}
	c.SetLineStyle(style)
	for _, run := range l.runs {
		points := make([]vg.Point, len(run))
		for i, xy := range run {
			points[i] = vg.Point{X: tx(clamp(xy.X, p.X.Min, p.X.Max)), Y: ty(clamp(xy.Y, p.Y.Min, p.Y.Max))}
		}
		var path vg.Path
		for i, pt := range thin(points) {
			if i == 0 {
				path.Move(pt)
			} else {
				path.Line(pt)
			}
		}
		c.Stroke(path)
	}
}

func clamp(v, low, high float64) float64 { return math.Min(math.Max(v, low), high) }

// thin keeps the first and the last point, and of the points in each column of one pixel the lowest and the highest, in their
// order: extremes stay, whatever is left out. Points have rising X.
func thin(points []vg.Point) []vg.Point {
	var out []vg.Point
	for i := 0; i < len(points); {
		column, low, high := math.Floor(points[i].X.Points()), i, i
		j := i
		for ; j < len(points) && math.Floor(points[j].X.Points()) == column; j++ {
			if points[j].Y < points[low].Y {
				low = j
			}
			if points[j].Y > points[high].Y {
				high = j
			}
		}
		keep := []int{min(low, high), max(low, high)}
		if i == 0 && keep[0] != 0 {
			keep = append([]int{0}, keep...)
		}
		if j == len(points) && keep[len(keep)-1] != j-1 {
			keep = append(keep, j-1)
		}
		for k, at := range keep {
			if k == 0 || at != keep[k-1] {
				out = append(out, points[at])
			}
		}
		i = j
	}
	return out
}

// spots are drawn over the lines.
type spots []spot

func (all spots) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, m := range all {
		x := tx(clamp(m.x, p.X.Min, p.X.Max))
		if m.low != 0 || m.high != 0 {
			low, high := ty(clamp(m.low, p.Y.Min, p.Y.Max)), ty(clamp(m.high, p.Y.Min, p.Y.Max))
			style := draw.LineStyle{Color: m.ink, Width: 1.5}
			c.StrokeLine2(style, x, low, x, high)
			c.StrokeLine2(style, x-4, low, x+4, low)
			c.StrokeLine2(style, x-4, high, x+4, high)
		}
		m.at(c, vg.Point{X: x, Y: ty(clamp(m.y, p.Y.Min, p.Y.Max))})
	}
}

// at draws the shape of m.
func (m *spot) at(c draw.Canvas, pt vg.Point) {
	const radius, line = 4.5, 1.8
	circle := func(fill ink) {
		var path vg.Path
		path.Move(pt.Add(vg.Point{X: radius}))
		path.Arc(pt, radius, 0, 2*math.Pi)
		path.Close()
		c.SetColor(fill)
		c.Fill(path)
		c.SetLineStyle(draw.LineStyle{Color: m.ink, Width: line})
		c.Stroke(path)
	}
	switch m.shape {
	case "dot":
		circle(m.ink)
	case "ring":
		circle(inkPaper)
	case "cross":
		style := draw.LineStyle{Color: m.ink, Width: line}
		c.StrokeLine2(style, pt.X-radius, pt.Y-radius, pt.X+radius, pt.Y+radius)
		c.StrokeLine2(style, pt.X-radius, pt.Y+radius, pt.X+radius, pt.Y-radius)
	}
}

// bars are horizontal.
type bars []bar

func (all bars) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, b := range all {
		x0, x1 := tx(b.x0), tx(b.x1)
		if x1 < x0+1 {
			x1 = x0 + 1 // a part that took next to no time is still there
		}
		y0, y1 := ty(float64(b.row)-0.34), ty(float64(b.row)+0.34)
		c.FillPolygon(b.ink, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
	}
}
