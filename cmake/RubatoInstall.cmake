# What `cmake --install` puts where: headers, libraries, their pkg-config and CMake packages,
# programs, man pages, completion, HTML pages, example cluster files. All of it finds the rest
# relative to itself, so that the tree may be moved.
include(CMakePackageConfigHelpers)

get_property(folders GLOBAL PROPERTY RUBATO_OBJECT_LIBRARIES)
get_property(programs GLOBAL PROPERTY RUBATO_PROGRAMS)

# The static library as others get it: one object in which all but the public API is local, so that
# our short internal names meet nobody else's.
set(archive ${RUBATO_LIB_DIR}/librubato.a)
set(object ${RUBATO_LIB_DIR}/rubato.o)
foreach(folder IN LISTS folders)
    list(APPEND objects $<TARGET_OBJECTS:${folder}>)
endforeach()
add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${RUBATO_LIB_DIR}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${object} ${objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} rcs ${archive} ${object}
    DEPENDS ${folders} ${objects}
    COMMENT "Linking static library lib/librubato.a"
    COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(rubato_static ALL DEPENDS ${archive})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rubato)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pc /${pkgconfig_dir} /)
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/rubato.pc.in ${PROJECT_BINARY_DIR}/rubato.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/rubato-static.pc.in
    ${PROJECT_BINARY_DIR}/rubato-static.pc @ONLY)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rubatoConfig.cmake.in
    ${PROJECT_BINARY_DIR}/rubatoConfig.cmake
    INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rubatoConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rubato DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
install(TARGETS rubato LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/rubato.pc ${PROJECT_BINARY_DIR}/rubato-static.pc
    DESTINATION ${pkgconfig_dir})
install(FILES ${PROJECT_BINARY_DIR}/rubatoConfig.cmake
    ${PROJECT_BINARY_DIR}/rubatoConfigVersion.cmake DESTINATION ${package_dir})
if(programs)
    install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

foreach(section IN ITEMS 1 5)
    file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.${section})
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
# Bash looks for a file of the program's name.
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
foreach(page IN LISTS pages)
    get_filename_component(name ${page} NAME_WE)
    install(FILES ${PROJECT_SOURCE_DIR}/config/completion/rubato.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${name})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/config/completion/_rubato
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/config/*.cfg)
install(FILES ${examples} DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The documentation as HTML, where there is what makes it.
find_program(RUBATO_CMARK cmark-gfm)
mark_as_advanced(RUBATO_CMARK)
if(RUBATO_CMARK)
    install(CODE "execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/docs/make-pages\"
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}/html\"
        COMMAND_ERROR_IS_FATAL ANY)")
else()
    message(STATUS "There is no cmark-gfm: the documentation is not installed as HTML")
endif()
