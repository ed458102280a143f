# Draws what docs/figures/measure-scale has measured: iterations per second of Rubato and of bare
# threads, a panel for each model, with more and more workers, servers or nodes.
# usage: awk -v picture=workers|servers|nodes -f scale.awk scale.tsv

function line(x1, y1, x2, y2, style) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style
}

function text(x, y, anchor, size, colour, what) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", \
        x, y, anchor, size, colour, what
}

function log2(x) { return log(x) / log(2) }

# Twice as many are one step to the right; ten times the rate is one step up.
function x_of(n) { return left + 14 + log2(n) / log2(most_n) * (right - left - 28) }

function y_of(rate) { return bottom - (log(rate) - log(floor)) / (log(ceiling) - log(floor)) * (bottom - top) }

function rate_text(rate) {
    return rate >= 999500 ? sprintf("%.1f M", rate / 1e6) : sprintf(rate < 9950 ? "%.1f k" : "%.0f k", rate / 1e3)
}

# One line of a panel, with its least and most samples at each point.
function draw_line(m, what, colour, dashes,    i, n) {
    printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\" %s points=\"", \
        colour, dashes
    for (i = 1; i <= n_points[m]; i++)
        printf "%.1f,%.1f ", x_of(at[m, i]), y_of(rate[m, i, what])
    print "\"/>"
    for (i = 1; i <= n_points[m]; i++) {
        n = x_of(at[m, i])
        line(n, y_of(least[m, i, what]), n, y_of(most[m, i, what]), "stroke=\"" colour "\" stroke-opacity=\"0.5\"")
        printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", n, y_of(rate[m, i, what]), colour
    }
}

# At the end of a line: above it, or below.
function draw_end(m, what, colour, is_above,    y) {
    y = y_of(rate[m, n_points[m], what]) + (is_above ? -10 : 18)
    text(right, y, "end", 11, colour, rate_text(rate[m, n_points[m], what]))
}

function draw_panel(m,    i, tick, is_faster) {
    left = 52 + (m - 1) * 215
    right = left + 195
    top = 60
    bottom = 290
    text(left, 50, "start", 13, colours[m], title[name[m]])
    for (tick = floor; tick <= ceiling * 1.001; tick *= 10) {
        line(left, y_of(tick), right, y_of(tick), "stroke=\"#e4e4e4\"")
        if (m == 1)
            text(left - 6, y_of(tick) + 4, "end", 11, "#777777", tick >= 1e6 ? tick / 1e6 " M" : tick / 1e3 " k")
    }
    line(left, bottom, right, bottom, "stroke=\"#999999\"")
    for (i = 1; i <= n_points[m]; i++)
        text(x_of(at[m, i]), bottom + 16, "middle", 11, "#777777", at[m, i])
    draw_line(m, "bare", "#999999", "stroke-dasharray=\"4 3\"")
    draw_line(m, "own", colours[m], "")
    is_faster = rate[m, n_points[m], "own"] > rate[m, n_points[m], "bare"]
    draw_end(m, "own", colours[m], is_faster)
    draw_end(m, "bare", "#777777", !is_faster)
}

BEGIN {
    FS = "\t"
    n_models = split("asp ssp sparse bsp", name, " ")
    split("#c7762f #2f74b5 #4d9a5b #444444", colours, " ")
    title["asp"] = "ASP"
    title["ssp"] = "SSP, staleness 2"
    title["sparse"] = "SparseSSP, 1 + 1"
    title["bsp"] = "BSP"
    for (m = 1; m <= n_models; m++)
        number[name[m]] = m
    what["workers"] = "workers on one server"
    what["servers"] = "servers, two workers"
    what["nodes"] = "nodes of a worker and a server each"
    floor = picture == "servers" ? 1e4 : picture == "nodes" ? 1e3 : 1e4
    ceiling = 1e7
}

$1 == picture {
    m = number[$2]
    i = ++n_points[m]
    at[m, i] = $3
    rate[m, i, "own"] = $4; least[m, i, "own"] = $5; most[m, i, "own"] = $6
    rate[m, i, "bare"] = $7; least[m, i, "bare"] = $8; most[m, i, "bare"] = $9
    if ($3 > most_n)
        most_n = $3
}

END {
    width = 920
    height = 326
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", width, height
    printf " viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", width, height
    printf "<title>Iterations per second with more and more %s, under each model</title>\n", picture
    printf "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height
    printf "<text x=\"12\" y=\"24\" font-size=\"14\" fill=\"#222222\">Iterations per second, all workers together"
    printf "<tspan font-size=\"11\" fill=\"#777777\" dx=\"10\">against %s; dashed: bare threads; ", what[picture]
    print "bars: all samples</tspan></text>"
    for (m = 1; m <= n_models; m++)
        draw_panel(m)
    print "</svg>"
}
